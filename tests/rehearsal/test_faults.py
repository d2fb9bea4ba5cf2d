"""Each fault that a loss curve hides is found in a rehearsal, and a healthy run is silent, on three architectures."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from transformers import (
    AutoModelForCausalLM,
    DataCollatorForLanguageModeling,
    DataCollatorForSeq2Seq,
    Gemma3TextConfig,
    LlamaConfig,
    Qwen3Config,
    Trainer,
)

import truetune
from tests.auditing import tiny
from truetune.rehearsal import rehearse_in_process
from truetune.rehearsal.rehearsal_report import RehearsalReport

SHAPE = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
SHAPES = {"llama": LlamaConfig, "qwen3": Qwen3Config, "gemma3": Gemma3TextConfig}
ROWS = tiny.chats(6)
Rows = list[dict[str, Any]]


def rehearsed(
    rows: Rows,
    shape: str = "llama",
    collator: Any = DataCollatorForSeq2Seq,
    given: Rows = ROWS,
    tokenizer: Any = None,
) -> RehearsalReport:
    """A Trainer over encoded rows, rehearsed."""
    tokenizer = tokenizer or tiny.tokenizer()
    torch.manual_seed(0)
    settings = {"head_dim": 8} if shape != "llama" else {}
    config = SHAPES[shape](
        vocab_size=len(tokenizer),
        num_hidden_layers=6,
        eos_token_id=tokenizer.eos_token_id,
        **SHAPE,
        **settings,
    )
    made = collator(tokenizer)
    trainer = Trainer(
        AutoModelForCausalLM.from_config(config),
        tiny.arguments(),
        made,
        Dataset.from_list(rows),
        processing_class=tokenizer,
    )
    return truetune.rehearse(
        trainer, given=Dataset.from_list(given), laws="none", rows=4, batches=2
    )


def codes(report: RehearsalReport) -> list[str]:
    families = ("REC", "ANS")
    return [finding.rule for finding in report.findings if finding.code.startswith(families)]


@pytest.mark.parametrize("shape", SHAPES)
def test_healthy(shape: str) -> None:
    report = rehearsed(tiny.encoded(ROWS), shape)
    assert codes(report) == []
    assert len(report.recited) == 4
    assert all(row.recited and row.stopped and row.said == row.reference for row in report.recited)
    assert report.miniature.startswith(
        {"llama": "Llama", "qwen3": "Qwen3", "gemma3": "Gemma3"}[shape]
    )
    assert report.losses[-1] < 0.1


def pad_is_eos() -> RehearsalReport:
    tokenizer = tiny.tokenizer()
    tokenizer.pad_token = tokenizer.eos_token
    ids = [{"input_ids": row["input_ids"]} for row in tiny.encoded(ROWS)]
    return rehearsed(
        ids, collator=lambda t: DataCollatorForLanguageModeling(t, mlm=False), tokenizer=tokenizer
    )


def eos_never_appended() -> RehearsalReport:
    rows = tiny.encoded(ROWS)
    cut = [max(i for i, label in enumerate(row["labels"]) if label != -100) for row in rows]
    return rehearsed(
        [
            {key: value[:end] for key, value in row.items()}
            for row, end in zip(rows, cut, strict=True)
        ]
    )


def labels_shifted_twice() -> RehearsalReport:
    return rehearsed([{**row, "labels": [*row["labels"][1:], -100]} for row in tiny.encoded(ROWS)])


def another_column() -> RehearsalReport:
    hints = [f"a hint on box {i}" for i in range(len(ROWS))]
    given = [
        {
            "question": row["messages"][0]["content"],
            "answer": row["messages"][1]["content"],
            "hint": hint,
        }
        for row, hint in zip(ROWS, hints, strict=True)
    ]
    rows = [
        {"messages": [row["messages"][0], {"role": "assistant", "content": hint}]}
        for row, hint in zip(ROWS, hints, strict=True)
    ]
    return rehearsed(tiny.encoded(rows), given=given)


def another_template() -> RehearsalReport:
    trained = tiny.tokenizer()
    trained.chat_template = (
        "{% for m in messages %}{% if m.role == 'user' %}User: {{ m.content }}\n{% else"
        " %}Assistant:\n{{ m.content }}{{ eos_token }}{% endif %}{% endfor %}{% if"
        " add_generation_prompt %}Assistant:\n{% endif %}"
    )
    return rehearsed(tiny.encoded(ROWS, trained))


def prompt_alone_supervised() -> RehearsalReport:
    rows = tiny.encoded(ROWS)
    return rehearsed(
        [
            {
                "input_ids": row["input_ids"],
                "labels": [
                    -100 if label != -100 else id
                    for id, label in zip(row["input_ids"], row["labels"], strict=True)
                ],
            }
            for row in rows
        ]
    )


@pytest.mark.parametrize(
    ("fault", "rule"),
    [
        (pad_is_eos, "recites-but-never-stops"),
        (eos_never_appended, "recites-but-never-stops"),
        (labels_shifted_twice, "memorised-but-not-recited"),
        (another_column, "recites-another-field"),
        (another_template, "answers-need-another-prompt"),
        (prompt_alone_supervised, "memorised-but-not-recited"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_fault(fault: Callable[[], RehearsalReport], rule: str) -> None:
    report = fault()
    assert codes(report) == [rule]
    assert report.failed()


def test_nothing_of_the_trainer_is_changed() -> None:
    trainer = tiny.sft()
    trainer.create_optimizer()
    trainer._set_signature_columns_if_needed()
    before, state = dict(vars(trainer)), torch.get_rng_state()
    weights = {name: value.clone() for name, value in trainer.model.state_dict().items()}
    truetune.rehearse(trainer, given=Dataset.from_list(tiny.chats()), laws="none", rows=1)
    assert {
        name: value for name, value in vars(trainer).items() if before.get(name) is not value
    } == {}
    assert torch.equal(state, torch.get_rng_state())
    assert all(
        torch.equal(weights[name], value) for name, value in trainer.model.state_dict().items()
    )
    assert trainer.model.config.hidden_size == 32
    trainer.train()


def test_the_folder_of_a_rehearsal_goes_with_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`truetune.rehearse` left a folder with the tokenizer's files behind at each call."""
    opened = tmp_path / "truetune-workspace"
    opened.mkdir()
    monkeypatch.setattr(rehearse_in_process, "open_workspace_until_exit", lambda: opened)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    trainer = tiny.sft()
    before = set(tmp_path.iterdir())
    truetune.rehearse(trainer, given=Dataset.from_list(tiny.chats()), laws="none", rows=1)
    assert set(tmp_path.iterdir()) == before
    assert (opened / "tokenizer").is_dir()


def test_a_row_in_two_parts_of_a_pack_is_asked_alone() -> None:
    report = truetune.rehearse(
        tiny.sft(packing=True, max_length=128),
        given=Dataset.from_list(tiny.chats()),
        laws="none",
        rows=3,
    )
    assert codes(report) == []
    assert all(row.recited and row.stopped for row in report.recited)
