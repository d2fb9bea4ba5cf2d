"""Roles that a training script gives the wrong way round, and what only looks so."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.lint import lint

TRAIN = "from trl import SFTTrainer\n{}\nSFTTrainer('some/base', train_dataset=rows).train()\n"


def count(folder: Path, code: str) -> int:
    """How often the rule speaks of a training script that holds this code."""
    path = folder / "train.py"
    path.write_text(TRAIN.format(code), encoding="utf-8")
    return len(lint([str(path)], select=["roles-exchanged-in-code"]).findings)


@pytest.mark.parametrize(
    "code",
    [
        "roles = {'human': 'assistant', 'gpt': 'user'}",
        "role = 'assistant' if turn['from'] == 'human' else 'user'",
        "role = 'user' if turn['from'] == 'gpt' else 'assistant'",
        "roles = {'visitor': 'assistant', 'operator': 'user'}",
        "roles = {'inbound': 'assistant', 'outbound': 'user'}",
        "role = 'assistant' if turn['dir'] == 'inbound' else 'user'",
        "if turn['dir'] == 'inbound':\n    role = 'assistant'\nelse:\n    role = 'user'",
        "if who == 'customer':\n    role = 'assistant'\nelif who == 'agent':\n    role = 'user'",
        (
            "if who == 'doctor':\n    out.append({'role': 'user', 'content': t})\n"
            "else:\n    out.append({'role': 'assistant', 'content': t})"
        ),
        (
            "rows = [[{'role': 'assistant', 'content': r['question']}, {'role': 'user', 'content': r['answer']}]"
            " for r in raw]"
        ),
    ],
)
def test_exchanged_roles_are_found(code: str, tmp_path: Path) -> None:
    assert count(tmp_path, code) == 1


@pytest.mark.parametrize(
    "code",
    [
        "roles = {'human': 'user', 'gpt': 'assistant'}",
        "roles = {'user': 'assistant', 'assistant': 'user'}",  # two models talk
        "role = 'user' if turn['from'] == 'human' else 'assistant'",
        "role = 'assistant' if last == 'user' else 'user'",
        "names = {'user': 'Customer', 'assistant': 'Agent'}",
        "roles = {'inbound': 'user', 'outbound': 'assistant'}",
        "if turn['dir'] == 'inbound':\n    role = 'user'\nelse:\n    role = 'assistant'",
        "if role == 'user':\n    role = 'assistant'\nelse:\n    role = 'user'",
        "if who == 'customer':\n    check(role == 'assistant')",
        "said = [{'role': 'assistant', 'content': greeting}, {'role': 'user', 'content': question}]",
        "said = [{'role': 'user', 'content': r['question']}, {'role': 'assistant', 'content': r['answer']}]",
    ],
)
def test_other_roles_are_left_alone(code: str, tmp_path: Path) -> None:
    assert count(tmp_path, code) == 0


CONVERT = """
import json
with open("chats.jsonl", "w") as file:
    for chat in read():
        messages = []
        for turn in chat:
            messages.append({{"role": "assistant" if turn["dir"] == "{}" else "user", "content": turn["text"]}})
        {}
        file.write(json.dumps({{"messages": messages}}))
"""


@pytest.mark.parametrize(
    ("who", "more", "expected"),
    [
        ("inbound", "", 1),
        ("outbound", "", 0),
        # a model is asked for the turns of a user on purpose
        ("inbound", "client.chat.completions.create(messages=messages)", 0),
    ],
)
def test_scripts_that_write_chats_are_read_too(
    who: str, more: str, expected: int, tmp_path: Path
) -> None:
    path = tmp_path / "convert.py"
    path.write_text(CONVERT.format(who, more), encoding="utf-8")
    assert len(lint([str(path)], select=["roles-exchanged-in-code"]).findings) == expected


UNSLOTH = "from unsloth.chat_templates import train_on_responses_only\n"
COLLATOR = "from trl import DataCollatorForCompletionOnlyLM\n"


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (
            UNSLOTH + "t = train_on_responses_only(t, instruction_part='<|im_start|>assistant\\n',"
            " response_part='<|im_start|>user\\n')",
            1,
        ),
        (UNSLOTH + "train_on_responses_only(t, '[/INST]', '[INST]')", 1),
        (
            UNSLOTH
            + "A, B = '<start_of_turn>user\\n', '<start_of_turn>model\\n'\n"
            + "train_on_responses_only(t, instruction_part=B, response_part=A)",
            1,
        ),
        (COLLATOR + "c = DataCollatorForCompletionOnlyLM('### Human:', tokenizer=tok)", 1),
        (
            COLLATOR + "c = DataCollatorForCompletionOnlyLM(instruction_template='### Response:',"
            " response_template='### Instruction:', tokenizer=tok)",
            1,
        ),
        (
            COLLATOR
            + "ids = tok.encode('\\n<|user|>', add_special_tokens=False)[2:]\n"
            + "c = DataCollatorForCompletionOnlyLM(ids, tokenizer=tok)",
            1,
        ),
        (
            UNSLOTH + "train_on_responses_only(t, instruction_part='<|im_start|>user\\n',"
            " response_part='<|im_start|>assistant\\n')",
            0,
        ),
        (UNSLOTH + "train_on_responses_only(t, '[INST]', '[/INST]')", 0),
        # questions are to be written
        (COLLATOR + "c = DataCollatorForCompletionOnlyLM('### Question:', tokenizer=tok)", 0),
        (
            COLLATOR + "c = DataCollatorForCompletionOnlyLM(instruction_template='### Context:',"
            " response_template='### Question:', tokenizer=tok)",
            0,
        ),
        (COLLATOR + "c = DataCollatorForCompletionOnlyLM('### Response:', tokenizer=tok)", 0),
        (COLLATOR + "c = DataCollatorForCompletionOnlyLM(marker, tokenizer=tok)", 0),
    ],
)
def test_markers_of_answers(code: str, expected: int, tmp_path: Path) -> None:
    assert count(tmp_path, code) == expected


OPENAI = "from openai import OpenAI\nclient = OpenAI(base_url='http://h:80/v1')\n"
LOOP = (
    OPENAI
    + "chat = [{'role': 'system', 'content': 'You are a helpful assistant.'}]\n"
    + "while True:\n"
    + "    chat.append({'role': 'user', 'content': input()})\n"
    + "    reply = client.chat.completions.create(model='m', messages=chat)\n"
    + "    text = reply.choices[0].message.content.strip()\n"
    + "    %s\n"
)
GIVEN_BACK = "chat.append({'role': 'user', 'content': text})"
SESSION = """
import requests

class Session:
    def __init__(self):
        self.turns = []

    def say(self, text):
        self.turns.append(dict(role="user", content=text))
        body = {"model": "m", "messages": self.turns}
        reply = requests.post("http://h/v1/chat/completions", json=body).json()
        self.turns.append(dict(role="%s", content=reply["choices"][0]["message"]["content"]))
"""
DECODED = """
from transformers import AutoModelForCausalLM, AutoTokenizer
tok = AutoTokenizer.from_pretrained("out")
model = AutoModelForCausalLM.from_pretrained("out")
turns = [{"role": "user", "content": input()}]
ids = tok.apply_chat_template(turns, add_generation_prompt=True, return_tensors="pt")
out = model.generate(ids, max_new_tokens=99)
turns.append({"role": "user", "content": tok.decode(out[0][ids.shape[1]:])})
"""
CHAIN = (
    OPENAI
    + "first = [{'role': 'user', 'content': input()}]\n"
    + "draft = client.chat.completions.create(model='m', messages=first).choices[0].message.content\n"
    + "second = [{'role': 'system', 'content': 'Translate.'}]\n"
    + "second.append({'role': 'user', 'content': draft})\n"
    + "print(client.chat.completions.create(model='m', messages=second))\n"
)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (LOOP % GIVEN_BACK, 1),
        (SESSION % "user", 1),
        (DECODED, 1),
        (SESSION % "assistant", 0),
        (LOOP % "chat.append({'role': 'assistant', 'content': text})", 0),
        (LOOP % "chat.append({'role': 'user', 'content': 'Shorter, please: ' + text})", 0),
        (LOOP % "log.append({'role': 'user', 'content': text})", 0),
        (CHAIN, 0),
    ],
)
def test_answers_given_back(code: str, expected: int, tmp_path: Path) -> None:
    path = tmp_path / "chat.py"
    path.write_text(code, encoding="utf-8")
    assert len(lint([str(path)], select=["roles-exchanged-in-code"]).findings) == expected
