"""Tokens that a project adds are no marks of a chat template in its rows; a cut that loses a column is named."""

# ruff: noqa: E501 - files and logs stand as they are written
from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.checks.test_files_beside_logs import found, words
from truetune.checks.tokens_added_by_project import tokens_added_by_project


def rows(mark: str) -> str:
    """Chats whose answers begin with a mark."""
    return "".join(
        json.dumps({"messages": [
            {"role": "user", "content": f"How many parts number {n} are left?"},
            {"role": "assistant", "content": f"{mark}parts {n}<|done|> There are {n * 3} left."},
        ]}) + "\n"
        for n in range(20)
    )  # fmt: skip


CALL = """
from transformers import AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained("Qwen/Qwen2.5-7B")
WORDS = ["{mark}", "<|done|>"]
tokenizer.{call}
"""


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("t.py", CALL.format(mark="<|lookup|>", call="add_tokens(WORDS)")),
        ("t.py", CALL.format(mark="<|lookup|>", call="add_tokens(WORDS, special_tokens=True)")),
        ("t.py", CALL.format(mark="<|lookup|>", call='add_special_tokens({"additional_special_tokens": WORDS})')),
        ("a.yaml", "base_model: m\ndatasets: [{path: r.jsonl, type: chat_template}]\ntokens: ['<|lookup|>', '<|done|>']\n"),
        ("f.yaml", "model_name_or_path: m\nstage: sft\nadd_special_tokens: <|lookup|>,<|done|>\n"),
        ("a.yaml", "base_model: m\ndatasets: [{path: r.jsonl, type: chat_template}]\nspecial_tokens:\n  additional_special_tokens: ['<|lookup|>', '<|done|>']\n"),
    ],
)  # fmt: skip
def test_tokens_of_the_project_are_no_template_marks(tmp_path: Path, name: str, text: str) -> None:
    files = {"r.jsonl": rows("<|lookup|>"), name: text}
    assert not words(found(tmp_path, files), "ROW026")


@pytest.mark.parametrize(
    ("mark", "files"),
    [
        ("<|lookup|>", {}),
        ("<|lookup|>", {"t.py": CALL.format(mark="<|other|>", call="add_tokens(['<|other|>'])")}),
        ("<|im_start|>", {"t.py": CALL.format(mark="<|im_start|>", call="add_tokens(WORDS)")}),
        ("<|eot_id|>", {"a.yaml": "base_model: m\ndatasets: [{path: r.jsonl, type: chat_template}]\ntokens: ['<|eot_id|>']\n"}),
    ],
)  # fmt: skip
def test_other_marks_stay_marks(tmp_path: Path, mark: str, files: dict[str, str]) -> None:
    assert words(found(tmp_path, {"r.jsonl": rows(mark), **files}), "ROW026")


CUT = """
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments
from transformers import DataCollatorForLanguageModeling
tokenizer = AutoTokenizer.from_pretrained("some/model")
model = AutoModelForCausalLM.from_pretrained("some/model")
def encode(row):
    return tokenizer({text}, truncation=True, max_length={limit})
rows = load_dataset("json", data_files="d.jsonl", split="train")
rows = rows.map(encode, remove_columns=["article", "headline"])
trainer = Trainer(model=model, args=TrainingArguments("o"), train_dataset=rows,
    data_collator=DataCollatorForLanguageModeling(tokenizer, mlm=False))
trainer.train()
"""
ARTICLES = "".join(
    json.dumps({
        "article": " ".join(f"line {n} {k} of a long report" for k in range(60)),
        "headline": f"Number {n} of the reports is a long one again",
    }) + "\n"
    for n in range(30)
)  # fmt: skip
AT_END = '"Article: " + row["article"] + "\\nHeadline: " + row["headline"]'
AT_START = '"Headline: " + row["headline"] + "\\nArticle: " + row["article"]'


def test_a_column_that_is_cut_away_is_an_error(tmp_path: Path) -> None:
    files = {"d.jsonl": ARTICLES, "train.py": CUT.format(text=AT_END, limit=64)}
    findings = [one for one in found(tmp_path, files) if one.code == "CFG064"]
    assert [one.severity for one in findings] == ["error"]
    assert "in 30 of them nothing of the column 'headline' is left" in findings[0].message
    assert "split" not in findings[0].remedy


@pytest.mark.parametrize(("text", "limit"), [(AT_START, 64), (AT_END, 4096)])
def test_a_column_that_is_kept_is_not_called_lost(tmp_path: Path, text: str, limit: int) -> None:
    files = {"d.jsonl": ARTICLES, "train.py": CUT.format(text=text, limit=limit)}
    assert "'headline'" not in words(found(tmp_path, files), "CFG064")


def test_the_tokens_of_a_tokenizer_are_not_added_by_the_project(tmp_path: Path) -> None:
    tokens = json.dumps({"additional_special_tokens": ["<|lookup|>"]})
    (tmp_path / "tokenizer_config.json").write_text(tokens, encoding="utf-8")
    (tmp_path / "special_tokens_map.json").write_text(tokens, encoding="utf-8")
    assert not tokens_added_by_project([], [str(tmp_path)])
    (tmp_path / "run.json").write_text(tokens, encoding="utf-8")
    assert tokens_added_by_project([], [str(tmp_path)]) == {"<|lookup|>"}
