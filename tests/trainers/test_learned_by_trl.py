"""What the recorded facts say that a trainer learns, against the real one: the same rows, every label counted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.parts import folder
from tests.trainers import tiny_model
from truetune.checks.check_data import check
from truetune.checks.learned_tokens_against_ideal_mask import LearnedTokenCounts
from truetune.demo import DATA
from truetune.settings.read_truetune_settings import validate_settings

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
datasets = pytest.importorskip("datasets")
trl = pytest.importorskip("trl")
Rows = list[dict[str, Any]]
FAMILIES = ("smollm2", "qwen2.5-instruct", "llama3-instruct", "deepseek-v3")


def chats() -> Rows:
    """Demo rows without tools, which some of these templates refuse."""
    rows = [json.loads(line) for line in DATA.read_text(encoding="utf-8").splitlines()]
    plain = [
        row
        for row in rows
        if "tools" not in row and all(m["role"] != "tool" for m in row["messages"])
    ]
    return [{"messages": row["messages"]} for row in plain[:24]]


def prompts(rows: Rows) -> Rows:
    return [{"prompt": row["messages"][:-1], "completion": row["messages"][-1:]} for row in rows]


def strings() -> Rows:
    return [
        {"prompt": f"Question {i}: open? Answer:", "completion": f" Yes, {i} hours" * i}
        for i in range(1, 9)
    ]


def texts(end: str = "") -> Rows:
    return [{"text": f"Chapter {i}. " + "It was open. " * i + end} for i in range(1, 9)]


def real(rows: Rows, family: str, where: Path, **settings: Any) -> tuple[int, int]:
    """(labels, tokens) that reach TRL's SFTTrainer."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder(family))
    trainer = trl.SFTTrainer(
        tiny_model(),
        trl.SFTConfig(str(where / "out"), bf16=False, report_to=[], **settings),
        train_dataset=datasets.Dataset.from_list(rows),
        processing_class=tokenizer,
    )
    kept = list(trainer.train_dataset)
    labels = sum(label != -100 for row in kept for label in row["labels"])
    return labels, sum(len(row["input_ids"]) for row in kept)


def told(rows: Rows, family: str, where: Path, **settings: Any) -> LearnedTokenCounts:
    """What a check says of the same rows."""
    path = where / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    given = {
        "data": str(path),
        "tokenizer": str(folder(family)),
        "trained_by": "trl",
        "select": ["TOK001"],
    }
    learned = check(validate_settings({**given, **settings}, "test")).learned
    assert learned is not None
    return learned


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("kind", ["messages", "prompt and completion"])
def test_chats(family: str, kind: str, tmp_path: Path) -> None:
    rows = chats() if kind == "messages" else prompts(chats())
    learned = told(rows, family, tmp_path)
    assert (learned.tokens_in_loss, learned.tokens) == real(rows, family, tmp_path)
    assert (learned.tokens_in_loss == learned.tokens) == (kind == "messages")


@pytest.mark.parametrize("family", FAMILIES)
def test_strings_and_text_get_an_eos_unless_they_end_with_it(family: str, tmp_path: Path) -> None:
    eos = transformers.AutoTokenizer.from_pretrained(folder(family)).eos_token
    for i, rows in enumerate((strings(), texts() + texts(eos))):
        (here := tmp_path / str(i)).mkdir()
        learned = told(rows, family, here)
        assert (learned.tokens_in_loss, learned.tokens) == real(rows, family, here)


def test_completion_only_loss_off(tmp_path: Path) -> None:
    rows = prompts(chats())
    learned = told(rows, "smollm2", tmp_path, training={"completion_only_loss": False})
    assert (
        learned.tokens_in_loss
        == learned.tokens
        == real(rows, "smollm2", tmp_path, completion_only_loss=False)[0]
    )


@pytest.mark.parametrize(("family", "beside"), [("qwen2.5-instruct", 2), ("llama3-instruct", 0)])
def test_assistant_only_loss(family: str, beside: int, tmp_path: Path) -> None:
    """TRL's template for Qwen tags a line break before and behind each turn too: the check says "about"."""
    rows = chats()
    learned = told(rows, family, tmp_path, training={"assistant_only_loss": True})
    turns = sum(message["role"] == "assistant" for row in rows for message in row["messages"])
    assert learned.about
    assert learned.tokens_in_loss == learned.ideal
    labels = learned.tokens_in_loss + beside * turns
    assert (labels, learned.tokens) == real(rows, family, tmp_path, assistant_only_loss=True)


@pytest.mark.parametrize("limit", [40, 64, 1024])
@pytest.mark.parametrize("mode", ["keep_start", "keep_end"])
def test_a_cut(limit: int, mode: str, tmp_path: Path) -> None:
    rows = prompts(chats())
    settings = {"max_length": limit, "truncation_mode": mode}
    learned = told(
        rows, "smollm2", tmp_path, max_length=limit, training={"other": {"truncation_mode": mode}}
    )
    assert learned.tokens_in_loss == real(rows, "smollm2", tmp_path, **settings)[0]


def test_the_limit_by_default(tmp_path: Path) -> None:
    rows = [
        {
            "messages": [
                {"role": "user", "content": "Count."},
                {"role": "assistant", "content": "and one " * 900},
            ]
        }
    ]
    learned = told(rows, "smollm2", tmp_path)
    assert learned.limit_by_default
    assert (learned.tokens_in_loss, 1024) == real(rows, "smollm2", tmp_path)
    assert learned.lost == learned.tokens - 1024


def _labels(batch: Any) -> Iterator[int]:
    yield from (label for row in batch["labels"].tolist() for label in row)


@pytest.mark.parametrize("family", ["smollm2", "qwen2.5-instruct", "deepseek-v3"])
def test_the_language_modelling_collator_loses_every_pad_id(family: str, tmp_path: Path) -> None:
    rows = chats()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder(family))
    encoded = [
        {"input_ids": tokenizer.apply_chat_template(row["messages"], return_dict=True)["input_ids"]}
        for row in rows
    ]
    batch = transformers.DataCollatorForLanguageModeling(tokenizer, mlm=False)(encoded)
    learned = told(rows, family, tmp_path, trained_by="transformers")
    assert learned.tokens_in_loss == sum(label != -100 for label in _labels(batch))
    ends = sum(row["input_ids"].count(tokenizer.pad_token_id) for row in encoded)
    assert learned.masked_as_pads == ends
