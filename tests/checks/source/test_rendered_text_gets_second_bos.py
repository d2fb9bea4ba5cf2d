"""Rendered chats that TRL encodes with a second BOS."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.lint import lint

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"
SCRIPT = """\
from datasets import load_dataset
from transformers import AutoTokenizer
from trl import SFTConfig, SFTTrainer

tokenizer = AutoTokenizer.from_pretrained("{model}")
rows = load_dataset("json", data_files="chats.jsonl", split="train")
{render}
trainer = SFTTrainer("{model}", args=SFTConfig("out"{settings}), train_dataset=rows)
trainer.train()
"""
BY_LAMBDA = "rows = rows.map(lambda row: {'text': tokenizer.apply_chat_template(row['messages'], tokenize=False)})"
BY_FUNCTION = """\
def to_text(row):
    chat = [{"role": "system", "content": "Be brief."}] + row["messages"]
    text = tokenizer.apply_chat_template(chat, tokenize=False)
    return {"text": text}
rows = rows.map(to_text)
"""
OTHER_FIELD = BY_LAMBDA.replace("'text'", "'chat'")
TAKEN_OFF = BY_FUNCTION.replace(
    'return {"text": text}', 'return {"text": text.removeprefix(tokenizer.bos_token)}'
)
AS_IDS = (
    "rows = rows.map(lambda row: {'input_ids': tokenizer.apply_chat_template(row['messages'])})"
)


def _is_found(folder: Path, render: str, model: str = LLAMA, settings: str = "") -> bool:
    path = folder / "train.py"
    path.write_text(SCRIPT.format(render=render, model=model, settings=settings), encoding="utf-8")
    return bool(lint([path], select=["rendered-text-gets-second-bos"]).findings)


@pytest.mark.parametrize("render", [BY_LAMBDA, BY_FUNCTION])
@pytest.mark.parametrize(
    "model", [LLAMA, "google/gemma-2-2b-it", "mistralai/Mistral-7B-Instruct-v0.3"]
)
def test_the_text_column_begins_with_bos(render: str, model: str, tmp_path: Path) -> None:
    assert _is_found(tmp_path, render, model)


def test_a_text_column_of_another_name(tmp_path: Path) -> None:
    assert _is_found(tmp_path, OTHER_FIELD, settings=", dataset_text_field='chat'")
    assert not _is_found(tmp_path, OTHER_FIELD)


@pytest.mark.parametrize("render", [TAKEN_OFF, AS_IDS, ""])
def test_texts_without_a_second_bos(render: str, tmp_path: Path) -> None:
    assert not _is_found(tmp_path, render)


@pytest.mark.parametrize(
    "model", ["Qwen/Qwen2.5-7B-Instruct", "HuggingFaceTB/SmolLM2-135M-Instruct", "./mine"]
)
def test_models_that_add_none_or_are_not_known(model: str, tmp_path: Path) -> None:
    assert not _is_found(tmp_path, BY_FUNCTION, model)
