"""Prompts that reach a model without the header of the answer (SRC071), and near misses."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.lint import lint

HEAD = """
from threading import Thread
from fastapi import FastAPI
from transformers import AutoModelForCausalLM, AutoTokenizer, TextIteratorStreamer, pipeline
from vllm import LLM, SamplingParams

app = FastAPI()
name = "out/qwen"
tok = AutoTokenizer.from_pretrained(name)
"""
NET = "net = AutoModelForCausalLM.from_pretrained(name)\n"
HELPER = """
def to_prompt(turns):
    return tok.apply_chat_template(turns, tokenize=False%s)

@app.post("/ask")
def ask(body: dict):
    inputs = tok(to_prompt(body["messages"]), return_tensors="pt").to("cuda")
    return net.generate(**inputs, max_new_tokens=99)
"""
ENGINE = """
llm = LLM(name)
prompts = []
for row in rows:
    chat = [{"role": "user", "content": row["q"]}] + row["more"]
    prompts.append(tok.apply_chat_template(chat, tokenize=False%s))
outputs = llm.generate(prompts, SamplingParams(max_tokens=99))
"""
OPTIONS = """
def encode(turns, **options):
    return tok.apply_chat_template(turns, return_tensors="pt", return_dict=True, **options)

@app.post("/ask")
def ask(body: dict):
    inputs = encode(body["messages"]%s).to("cuda")
    return net.generate(**inputs, max_new_tokens=99)
"""
STREAMER = """
class Bot:
    def render(self, history):
        return tok.apply_chat_template(history, return_tensors="pt"%s)

    def say(self, history):
        streamer = TextIteratorStreamer(tok)
        kwargs = dict(inputs=self.render(history).to("cuda"), streamer=streamer, max_new_tokens=99)
        Thread(target=net.generate, kwargs=kwargs).start()
        return streamer
"""
PIPELINE = """
pipe = pipeline("text-generation", model=name)
def reply(history, question):
    history = history + [dict(role="user", content=question)]
    return pipe(tok.apply_chat_template(history, tokenize=False%s))
"""
TURNS = """
history = []
while True:
    history.append({"role": "user", "content": input()})
    inputs = tok.apply_chat_template(history, return_tensors="pt", return_dict=True%s)
    out = net.generate(**inputs, max_new_tokens=99)
    history.append({"role": "assistant", "content": tok.decode(out[0])})
"""
WITH_HEADER = ", add_generation_prompt=True"
WAYS = [NET + HELPER, ENGINE, NET + STREAMER, PIPELINE, NET + TURNS, NET + OPTIONS]


def codes(text: str, folder: Path) -> list[str]:
    """The codes of SRC071 in one script."""
    path = folder / "serve.py"
    path.write_text(HEAD + text, encoding="utf-8")
    findings = lint([path], select=["SRC071"]).findings
    return [one.code for one in findings if "add_generation_prompt" in one.message]


@pytest.mark.parametrize("text", WAYS)
def test_chats_are_followed_to_the_model(text: str, tmp_path: Path) -> None:
    assert codes(text % "", tmp_path) == ["SRC071"]
    assert codes(text % WITH_HEADER, tmp_path) == []


BEGUN = """
history.append({"role": "assistant", "content": "Sure:"})
net.generate(tok.apply_chat_template(history, return_tensors="pt"), max_new_tokens=9)
"""


@pytest.mark.parametrize(
    "text",
    [
        HELPER.replace("tokenize=False%s)", 'tokenize=False) + "<|im_start|>assistant\\n"'),
        "tok.chat_template = open('chat.jinja').read()\n" + HELPER % "",
        HELPER % "" + 'other = LLM("out/mistral-7b")\n',
        BEGUN,
        OPTIONS % ", **settings",
        (OPTIONS % "").replace(
            "    return tok",
            "    options.setdefault('add_generation_prompt', True)\n    return tok",
        ),
        OPTIONS % "" + 'encode(body["turns"], add_generation_prompt=True)\n',
        OPTIONS.replace("encode(body", "other(body") % "",
        "text = tok.apply_chat_template(row['messages'], tokenize=False)\nprint(len(tok(text).input_ids))\n",
    ],
)
def test_headers_of_ones_own_and_texts_that_are_counted_are_fine(text: str, tmp_path: Path) -> None:
    assert codes(NET + text, tmp_path) == []
