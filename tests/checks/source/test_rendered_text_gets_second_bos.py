"""Rendered chats that TRL encodes with a second BOS."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.lint import lint

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"
SCRIPT = """\
from datasets import Dataset, load_dataset
from transformers import AutoTokenizer
from trl import SFTConfig, SFTTrainer

tokenizer = AutoTokenizer.from_pretrained("{model}")
rows = load_dataset("json", data_files="chats.jsonl", split="train")
{render}
trainer = SFTTrainer("{model}", args=SFTConfig("out"{settings}), train_dataset=rows)
trainer.train()
"""
KEPT_COLUMNS = "rows = rows.map(lambda row: {'text': tokenizer.apply_chat_template(row['messages'], tokenize=False)})"
BY_LAMBDA = KEPT_COLUMNS.removesuffix(")") + ", remove_columns=['messages'])"
BY_FUNCTION = """\
def to_text(row):
    chat = [{"role": "system", "content": "Be brief."}] + row["messages"]
    text = tokenizer.apply_chat_template(chat, tokenize=False)
    return {"text": text}
rows = rows.map(to_text).select_columns(["text"])
"""
OF_ONE_SPLIT = BY_FUNCTION + "rows = rows['train']"
IN_A_LIST = BY_FUNCTION.replace(
    'rows.map(to_text).select_columns(["text"])',
    "Dataset.from_list([to_text(row) for row in rows])",
)
OF_OTHER_COLUMNS = (
    "chat = lambda row: [{'role': 'user', 'content': row['question']}]\n"
    "rows = rows.map(lambda row: {'text': tokenizer.apply_chat_template(chat(row), tokenize=False)})"
)
OTHER_FIELD = BY_LAMBDA.replace("'text'", "'chat'")
TAKEN_OFF = BY_FUNCTION.replace(
    'return {"text": text}', 'return {"text": text.removeprefix(tokenizer.bos_token)}'
)
TEMPLATE_OF_OWN = "tokenizer.chat_template = '{{ messages[0].content }}'\n" + BY_LAMBDA
CUT = BY_FUNCTION.replace('{"text": text}', '{"text": text[17:]}')
WITH_IDS = BY_FUNCTION.replace('{"text": text}', '{"text": text, "input_ids": tokenizer(chat)}')
PRINTED_ALONE = BY_LAMBDA.replace("rows = rows.map", "shown = rows.select(range(3)).map")
WITH_UNSLOTH = "from unsloth import FastLanguageModel\n" + BY_LAMBDA
AS_IDS = (
    "rows = rows.map(lambda row: {'input_ids': tokenizer.apply_chat_template(row['messages'])})"
)


def _is_found(folder: Path, render: str, model: str = LLAMA, settings: str = "") -> bool:
    path = folder / "train.py"
    path.write_text(SCRIPT.format(render=render, model=model, settings=settings), encoding="utf-8")
    return bool(lint([path], select=["rendered-text-gets-second-bos"]).findings)


@pytest.mark.parametrize(
    "render", [BY_LAMBDA, BY_FUNCTION, OF_ONE_SPLIT, IN_A_LIST, OF_OTHER_COLUMNS]
)
@pytest.mark.parametrize(
    "model", [LLAMA, "google/gemma-2-2b-it", "mistralai/Mistral-7B-Instruct-v0.3"]
)
def test_the_text_column_begins_with_bos(render: str, model: str, tmp_path: Path) -> None:
    assert _is_found(tmp_path, render, model)


def test_a_text_column_of_another_name(tmp_path: Path) -> None:
    assert _is_found(tmp_path, OTHER_FIELD, settings=", dataset_text_field='chat'")
    assert not _is_found(tmp_path, OTHER_FIELD)


def test_messages_that_are_still_there_are_rendered_by_trl_itself(tmp_path: Path) -> None:
    assert not _is_found(tmp_path, KEPT_COLUMNS)


def test_releases_of_trl_that_encode_the_text_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("trl==0.15.2\n", encoding="utf-8")
    assert _is_found(tmp_path, KEPT_COLUMNS)


@pytest.mark.parametrize(
    "render",
    [TAKEN_OFF, AS_IDS, "", TEMPLATE_OF_OWN, CUT, WITH_IDS, PRINTED_ALONE, WITH_UNSLOTH],
)
def test_texts_without_a_second_bos(render: str, tmp_path: Path) -> None:
    assert not _is_found(tmp_path, render)


@pytest.mark.parametrize(
    "model", ["Qwen/Qwen2.5-7B-Instruct", "HuggingFaceTB/SmolLM2-135M-Instruct", "./mine"]
)
def test_models_that_add_none_or_are_not_known(model: str, tmp_path: Path) -> None:
    assert not _is_found(tmp_path, BY_FUNCTION, model)
