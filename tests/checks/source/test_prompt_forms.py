"""Prompts of two scripts of one project: one trains, the other asks."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.lint import lint

TRAIN = """
from datasets import load_dataset
from trl import SFTConfig, SFTTrainer
{form}
rows = load_dataset("some/rows", split="train").map(fill)
SFTTrainer("some/base", args=SFTConfig(output_dir="runs/one"), train_dataset=rows).train()
"""
ALPACA = 'def fill(row):\n    return {"text": "### Instruction:\\n%s\\n\\n### Response:\\n%s" % (row["q"], row["a"])}'
DIALOGUE = "def fill(row):\n    return {'text': f\"User: {row['q']}\\nAssistant: {row['a']}</s>\"}"
CHAT = (
    "def fill(row):\n    return {'messages': [{'role': 'user', 'content': row['q']},"
    " {'role': 'assistant', 'content': row['a']}]}"
)
ASK = """
from peft import AutoPeftModelForCausalLM
from transformers import AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained("{name}")
model = AutoPeftModelForCausalLM.from_pretrained("{name}")
def answer(question):
{form}
    return model.generate(**inputs, max_new_tokens=100)
"""
BY_CHAT = (
    '    said = [{"role": "user", "content": question}]\n    inputs = tokenizer.apply_chat_template('
    'said, add_generation_prompt=True, return_tensors="pt", return_dict=True)'
)
BY_ALPACA = '    inputs = tokenizer("### Instruction:\\n" + question + "\\n\\n### Response:\\n", return_tensors="pt")'
BY_DIALOGUE = '    inputs = tokenizer(f"User: {question}\\nAssistant:", return_tensors="pt")'
BY_ALPACA_TEXT = '    inputs = tokenizer(f"### Instruction:\\n{question}\\n\\n### Response:\\n", return_tensors="pt")'
OTHER = {
    "text, then chat": (ALPACA, BY_CHAT),
    "chat, then text": (CHAT, BY_ALPACA_TEXT),
    "chat, then a sum of texts": (CHAT, BY_ALPACA),
    "two texts": (ALPACA, BY_DIALOGUE),
    "two texts, the other way": (DIALOGUE, BY_ALPACA_TEXT),
}
BARE = '    inputs = tokenizer(question, return_tensors="pt").to("cuda")'
OTHER |= {
    "chat, then the bare question": (CHAT, BARE),
    "text, then the bare question": (ALPACA, BARE),
}
OTHER |= {
    f"chat, then a text of its own words: {form}": (
        CHAT,
        f"    texts = {form}\n" + BARE.replace("(question", "(texts"),
    )
    for form in (
        """f"Case {row['id']}: {row['notes']}\"""",
        '"Write a letter on %s" % row["notes"]',
        '"Case {}".format(row["notes"].strip())',
        '"Please write a letter on " + row["notes"]',
        """[f"Case {r['id']}" for r in rows]""",
        'row["q"]',
    )
}
SAME = {
    "text": (ALPACA, BY_ALPACA_TEXT),
    "dialogue": (DIALOGUE, BY_DIALOGUE),
    "chat": (CHAT, BY_CHAT),
    "a column that may hold a finished prompt": (CHAT, BARE.replace("(question", "(row['filled']")),
    "marks that another file adds": (CHAT, BARE.replace("(question", "(f'Case {question}{END}'")),
    "a helper that adds marks": (CHAT, BARE.replace("(question", "(wrap(f'Case {question}')")),
}


def said(folder: Path, train: str, ask: str, name: str = "runs/one/final") -> list[str]:
    (folder / "train.py").write_text(TRAIN.format(form=train), encoding="utf-8")
    path = folder / "app.py"
    path.write_text(ASK.format(form=ask, name=name), encoding="utf-8")
    found = lint([str(path)], select=["asked-in-another-form"]).findings
    return [finding.message for finding in found]


@pytest.mark.parametrize("name", OTHER)
def test_another_form_is_found(name: str, tmp_path: Path) -> None:
    (message,) = said(tmp_path, *OTHER[name])
    assert "never seen this prompt format" in message


@pytest.mark.parametrize("name", SAME)
def test_one_form_is_left_alone(name: str, tmp_path: Path) -> None:
    assert said(tmp_path, *SAME[name]) == []


ONE_FILE = """
from datasets import load_dataset
from transformers import AutoTokenizer
from trl import SFTConfig, SFTTrainer
tokenizer = AutoTokenizer.from_pretrained("some/base")
{form}
rows = load_dataset("some/rows", split="train").map(fill)
trainer = SFTTrainer("some/base", args=SFTConfig(output_dir="runs/one"), train_dataset=rows)
{before}
trainer.train()
model = trainer.model.eval()
{after}
"""
BY_TEMPLATE = "def fill(row):\n    return {'text': tokenizer.apply_chat_template(row['messages'], tokenize=False)}"
ENCODE = "inputs = tokenizer({}, return_tensors='pt')\n"
GENERATE = "out = model.generate(**inputs, max_new_tokens=9)"
LOOP = "for q in ['Where is my parcel?', 'Who pays for it?']:\n    inputs = tokenizer([q], return_tensors='pt')\n    "


def said_of_one_file(folder: Path, form: str, after: str, before: str = "") -> list[str]:
    path = folder / "notebook.py"
    path.write_text(ONE_FILE.format(form=form, after=after, before=before), encoding="utf-8")
    return [one.message for one in lint([str(path)], select=["asked-in-another-form"]).findings]


@pytest.mark.parametrize(
    ("form", "after"),
    [
        (BY_TEMPLATE, LOOP + GENERATE),
        (BY_TEMPLATE, ENCODE.format("rows[0]['question']") + GENERATE),
        (BY_TEMPLATE, ENCODE.format("'User: Where is it?\\nAssistant:'") + GENERATE),
        (ALPACA, ENCODE.format("input('> ')") + GENERATE),
    ],
)
def test_another_form_after_the_training_is_found(form: str, after: str, tmp_path: Path) -> None:
    (message,) = said_of_one_file(tmp_path, form, after)
    assert "the training above trained it on" in message


@pytest.mark.parametrize(
    ("form", "after", "before"),
    [
        (BY_TEMPLATE, ENCODE.format("rows[0]['text']") + GENERATE, ""),
        (BY_TEMPLATE, ENCODE.format("make_prompt('Where is my parcel?')") + GENERATE, ""),
        (BY_TEMPLATE, ENCODE.format("'Hi'") + GENERATE, ""),
        (BY_TEMPLATE, "", "model = trainer.model\n" + LOOP + GENERATE),
        ("def fill(row):\n    return row", LOOP + GENERATE, ""),
    ],
)
def test_what_may_be_the_form_of_the_training_is_left_alone(
    form: str, after: str, before: str, tmp_path: Path
) -> None:
    assert said_of_one_file(tmp_path, form, after, before) == []


def test_a_model_from_elsewhere_is_left_alone(tmp_path: Path) -> None:
    assert said(tmp_path, ALPACA, BY_CHAT, "Qwen/Qwen2.5-7B-Instruct") == []
    assert said(tmp_path, ALPACA, BY_CHAT, "some/base") == []


def test_a_script_that_writes_both_forms_is_left_alone(tmp_path: Path) -> None:
    assert said(tmp_path, ALPACA, BY_CHAT + "\n" + BY_ALPACA_TEXT) == []


def test_of_two_trainings_the_one_that_wrote_the_model_counts(tmp_path: Path) -> None:
    other = TRAIN.format(form=CHAT).replace("runs/one", "runs/two")
    (tmp_path / "train_two.py").write_text(other, encoding="utf-8")
    assert said(tmp_path, ALPACA, BY_CHAT, "runs/two") == []
    assert said(tmp_path, ALPACA, BY_CHAT, "runs/one")
    assert said(tmp_path, ALPACA, BY_CHAT, "elsewhere") == []


CLIENT = """
from openai import OpenAI
client = OpenAI(base_url="http://localhost:8000/v1", api_key="none")
def ask(question):
    return client.{call}
"""
POST = """
import requests
URL = "http://localhost:8000/v1/completions"
def ask(question):
    payload = {"model": "desk", "prompt": question, "max_tokens": 200}
    return requests.post(URL, json=payload, timeout=60).json()
"""
RAW = CLIENT.format(call='completions.create(model="desk", prompt=question)')
MESSAGES = CLIENT.format(
    call='chat.completions.create(model="desk", messages=[{"role": "user", "content": question}])'
)
SERVE = "vllm serve some/base --enable-lora --lora-modules desk=runs/one\n"


def said_of_client(folder: Path, train: str, ask: str, serve: str = SERVE) -> list[str]:
    """What the rule says of a client, with a server's command and a training beside it."""
    (folder / "train.py").write_text(TRAIN.format(form=train), encoding="utf-8")
    (folder / "serve.sh").write_text(serve, encoding="utf-8")
    path = folder / "ask.py"
    path.write_text(ask, encoding="utf-8")
    found = lint([str(path)], select=["asked-in-another-form"]).findings
    return [finding.message for finding in found]


@pytest.mark.parametrize(("train", "ask"), [(CHAT, RAW), (CHAT, POST), (ALPACA, MESSAGES)])
def test_a_client_sends_another_form(train: str, ask: str, tmp_path: Path) -> None:
    (message,) = said_of_client(tmp_path, train, ask)
    assert "never seen this prompt format" in message


@pytest.mark.parametrize(
    ("train", "ask", "serve"),
    [
        pytest.param(CHAT, MESSAGES, SERVE, id="messages"),
        pytest.param(
            CHAT, RAW, SERVE.replace("runs/one", "elsewhere/two"), id="another adapter is served"
        ),
        pytest.param(
            ALPACA, MESSAGES, SERVE.strip() + " --chat-template alpaca.jinja\n", id="own template"
        ),
        pytest.param(CHAT, RAW, SERVE.replace("desk=", "other=") + SERVE, id="two servers"),
        pytest.param(
            ALPACA,
            RAW.replace(
                "prompt=question", 'prompt=f"### Instruction:\\n{question}\\n\\n### Response:\\n"'
            ),
            SERVE,
            id="the same prompt by hand",
        ),
    ],
)
def test_a_client_that_may_be_right_is_left_alone(
    train: str, ask: str, serve: str, tmp_path: Path
) -> None:
    assert said_of_client(tmp_path, train, ask, serve) == []


HEAD_OF_POST = "import json, os, requests, httpx, aiohttp, urllib.request\nBASE = os.environ.get('LLM', 'http://h:80')\n"
OF_ROW = """
for line in open("test.jsonl"):
    row = json.loads(line)
    {}
"""
FORMATTED = 'requests.post(f"{BASE}/v1/completions", json={"model": "desk", "prompt": %s, "max_tokens": 90})'
POSTS = {
    "parameter": HEAD_OF_POST + "def ask(question):\n    return " + FORMATTED % "question",
    "message of a row": HEAD_OF_POST + OF_ROW.format(FORMATTED % 'row["messages"][0]["content"]'),
    "message through a function": HEAD_OF_POST
    + "def ask(text):\n    return "
    + FORMATTED % "text"
    + OF_ROW.format('turn = row["prompt"][-1]\n    ask(turn["content"])'),
    "session": HEAD_OF_POST
    + "client = httpx.Client(base_url=BASE)\ndef ask(question):\n    return client.post('/v1/completions',"
    + " json=dict(model='desk', prompt=question))",
    "dumped": HEAD_OF_POST
    + "def ask(question):\n    return requests.post(BASE + '/v1/completions',"
    + " data=json.dumps({'model': 'desk', 'prompt': question}))",
    "standard library": HEAD_OF_POST
    + "def ask(question):\n    body = json.dumps({'model': 'desk', 'prompt': question}).encode()\n"
    + "    return urllib.request.urlopen(urllib.request.Request(BASE + '/v1/completions', data=body))",
    "coroutine": HEAD_OF_POST
    + "async def ask(s, question):\n    async with s.post(f'{BASE}/v1/completions',"
    + " json={'model': 'desk', 'prompt': question}) as r:\n        return await r.json()",
}
NO_BARE_POSTS = {
    "messages": HEAD_OF_POST
    + "def ask(question):\n    return requests.post(f'{BASE}/v1/chat/completions',"
    + " json={'model': 'desk', 'messages': [{'role': 'user', 'content': question}]})",
    "rendered": HEAD_OF_POST
    + "from transformers import AutoTokenizer\nt = AutoTokenizer.from_pretrained('runs/one')\n"
    + OF_ROW.format(
        "text = t.apply_chat_template(row['messages'][:-1], tokenize=False, add_generation_prompt=True)\n    "
        + FORMATTED % "text"
    ),
    "a finished prompt from elsewhere": HEAD_OF_POST + OF_ROW.format(FORMATTED % 'row["prompt"]'),
    "marks around the message": HEAD_OF_POST
    + OF_ROW.format(
        FORMATTED % "f\"<|im_start|>user\\n{row['messages'][0]['content']}<|im_end|>\\n\""
    ),
    "an element of another column": HEAD_OF_POST
    + OF_ROW.format(FORMATTED % 'row["documents"][0]["content"]'),
}


@pytest.mark.parametrize("name", POSTS)
def test_a_plain_request_sends_a_bare_text(name: str, tmp_path: Path) -> None:
    (message,) = said_of_client(tmp_path, CHAT, POSTS[name] + "\n")
    assert "a bare text" in message


@pytest.mark.parametrize("name", NO_BARE_POSTS)
def test_a_plain_request_that_may_be_right_is_left_alone(name: str, tmp_path: Path) -> None:
    assert said_of_client(tmp_path, CHAT, NO_BARE_POSTS[name] + "\n") == []


COMMENTED = """
from datasets import load_dataset
from trl import SFTConfig, SFTTrainer
rows = load_dataset("json", data_files="rows.jsonl", split="train")
{comment}
SFTTrainer("some/base", args=SFTConfig(output_dir="runs/one"), train_dataset=rows).train()
"""
SAYS_MESSAGES = (
    '# rows: {"prompt": [{"role": "user", ...}], "completion": [{"role": "assistant", ...}]}'
)
MESSAGE_ROW = '{"prompt": [{"role": "user", "content": "a"}], "completion": [{"role": "assistant", "content": "b"}]}\n'


@pytest.mark.parametrize(
    ("comment", "row", "count"),
    [
        (SAYS_MESSAGES, "", 1),
        ("", MESSAGE_ROW, 1),
        ("", '{"messages": [{"role": "user", "content": "a"}]}\n', 1),
        ("", "", 0),
        ("# the prompt is a text", "", 0),
        (SAYS_MESSAGES, '{"prompt": "a", "completion": "b"}\n', 0),
        ("", '{"prompt": "a", "completion": "b"}\n', 0),
    ],
)
def test_rows_of_messages_are_the_form_of_a_training(
    comment: str, row: str, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(COMMENTED.format(comment=comment), encoding="utf-8")
    (tmp_path / "serve.sh").write_text(SERVE, encoding="utf-8")
    (tmp_path / "ask.py").write_text(POSTS["parameter"] + "\n", encoding="utf-8")
    if row:
        (tmp_path / "rows.jsonl").write_text(row, encoding="utf-8")
    assert len(lint(["ask.py"], select=["asked-in-another-form"]).findings) == count


QWEN = TRAIN.replace("some/base", "Qwen/Qwen2.5-7B-Instruct")
ALPACA_TEMPLATE = 'TEMPLATE """### Instruction:\n{{ .Prompt }}\n\n### Response:\n"""\n'
CHATML_TEMPLATE = (
    'TEMPLATE """<|im_start|>user\n{{ .Prompt }}<|im_end|>\n<|im_start|>assistant\n"""\n'
)


def said_of_modelfile(folder: Path, train: str, template: str, base: str = "./one.gguf") -> int:
    """How often the rule speaks of a training script with a Modelfile beside it."""
    path = folder / "train.py"
    path.write_text(train, encoding="utf-8")
    (folder / "Modelfile").write_text(f"FROM {base}\n{template}", encoding="utf-8")
    return len(lint([str(path)], select=["asked-in-another-form"]).findings)


@pytest.mark.parametrize(
    ("train", "template"),
    [
        (QWEN.format(form=CHAT), ALPACA_TEMPLATE),
        (QWEN.format(form=CHAT), 'TEMPLATE """{{ .Prompt }}"""\n'),
        (QWEN.format(form=ALPACA), CHATML_TEMPLATE),
    ],
)
def test_a_modelfile_with_another_template_is_found(
    train: str, template: str, tmp_path: Path
) -> None:
    assert said_of_modelfile(tmp_path, train, template) == 1


@pytest.mark.parametrize(
    ("train", "template", "base"),
    [
        pytest.param(QWEN.format(form=CHAT), CHATML_TEMPLATE, "./one.gguf", id="the same"),
        pytest.param(QWEN.format(form=ALPACA), ALPACA_TEMPLATE, "./one.gguf", id="by hand"),
        pytest.param(TRAIN.format(form=CHAT), ALPACA_TEMPLATE, "./one.gguf", id="unknown base"),
        pytest.param(QWEN.format(form=CHAT), ALPACA_TEMPLATE, "llama3.1:8b", id="another model"),
        pytest.param(QWEN.format(form=CHAT), "", "./one.gguf", id="no template"),
    ],
)
def test_a_modelfile_that_may_be_right_is_left_alone(
    train: str, template: str, base: str, tmp_path: Path
) -> None:
    assert said_of_modelfile(tmp_path, train, template, base) == 0


@pytest.mark.parametrize(("name", "count"), [("llama-3.1", 1), ("chatml", 0), ("mine", 0)])
def test_two_files_name_templates(name: str, count: int, tmp_path: Path) -> None:
    given = 'tokenizer = get_chat_template(tokenizer, chat_template="{}")\n'
    load = (
        "from unsloth import FastLanguageModel\nfrom unsloth.chat_templates import get_chat_template\n"
        'model, tokenizer = FastLanguageModel.from_pretrained(model_name="{}")\n'
    )
    train = load.format("some/base") + given.format("chatml") + TRAIN.format(form=CHAT)
    (tmp_path / "train.py").write_text(train, encoding="utf-8")
    path = tmp_path / "ask.py"
    ask = load.format("runs/one") + given.format(name)
    ask += 'said = [{"role": "user", "content": text}]\n'
    ask += "ids = tokenizer.apply_chat_template(said, add_generation_prompt=True, return_tensors='pt')\n"
    ask += "model.generate(input_ids=ids)\n"
    path.write_text(ask, encoding="utf-8")
    assert len(lint([str(path)], select=["asked-in-another-form"]).findings) == count
