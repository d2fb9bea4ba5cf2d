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
SAME = {
    "text": (ALPACA, BY_ALPACA_TEXT),
    "dialogue": (DIALOGUE, BY_DIALOGUE),
    "chat": (CHAT, BY_CHAT),
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
    assert "another prompt than in training" in message


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
