"""Answers that end without a stop token, where the data set shows ids alone: by labels, in runs of many shapes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
import transformers

import truetune
from tests.auditing import tiny

RULES = ("BAT001", "BAT002")
Row = dict[str, list[int]]
TOPICS = (
    "the sea",
    "old clocks",
    "rain",
    "bread and salt",
    "a long road north",
    "bees",
    "ink",
    "two brothers",
)
ANSWERS = (
    "It is wide. Nobody owns it.",
    "They are slow and loud!",
    "Rain falls in spring, and again in autumn.",
    "Both are cheap.",
    "Take the road to the north, then ask",
    "Bees work together in a hive, as far as I know.",
    "Ink is black or blue; it dries.",
    "One left, one stayed. So it goes.",
)


class OnTheFly(torch.utils.data.Dataset[Row]):
    """Rows of ids, as a data set that tokenizes in `__getitem__` gives them."""

    def __init__(self, rows: list[Row]) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Row:
        return self.rows[index]


@dataclass(frozen=True)
class Shape:
    """How the rows of a run are made."""

    ending: str = ""
    is_ending_learned: bool = True
    answers: tuple[str, ...] = ANSWERS
    is_prompt_learned: bool = False
    prompt: str = "Question: tell me of {topic}\nAnswer: "


def rows_of(shape: Shape) -> list[Row]:
    """Prompt and answer in ids, the prompt masked."""
    tokenizer = tiny.tokenizer()
    made = []
    for topic, answer in zip(TOPICS, shape.answers, strict=True):
        prompt = tokenizer(shape.prompt.format(topic=topic), add_special_tokens=False)["input_ids"]
        body = tokenizer(answer, add_special_tokens=False)["input_ids"]
        end = tokenizer(shape.ending, add_special_tokens=False)["input_ids"] if shape.ending else []
        learned = prompt if shape.is_prompt_learned else [-100] * len(prompt)
        ids = prompt + body + end
        labels = learned + body + (end if shape.is_ending_learned else [-100] * len(end))
        made.append({"input_ids": ids, "attention_mask": [1] * len(ids), "labels": labels})
    return made


def own_collator(rows: list[Row]) -> dict[str, torch.Tensor]:
    """Pads by hand, with the tokenizer's pad token."""
    width, pad = max(len(row["input_ids"]) for row in rows), tiny.tokenizer().pad_token_id
    filled = {"input_ids": pad, "attention_mask": 0, "labels": -100}
    return {
        key: torch.tensor([row[key] + [value] * (width - len(row[key])) for row in rows])
        for key, value in filled.items()
    }


def packed(rows: list[Row]) -> list[Row]:
    """Pairs of rows joined to one line, with nothing to tell them apart."""
    return [
        {key: one[key] + other[key] for key in one}
        for one, other in zip(rows, rows[1:] + rows[:1], strict=True)
    ]


def windows(size: int, shared: int) -> list[Row]:
    """Windows over a long text that share their beginnings, which are masked; the last is short."""
    ids = tiny.tokenizer()(" ".join(ANSWERS * 3), add_special_tokens=False)["input_ids"]
    cut = [ids[start : start + size] for start in range(0, len(ids) - shared, size - shared)]
    return [
        {
            "input_ids": part,
            "attention_mask": [1] * len(part),
            "labels": [-100] * shared + part[shared:],
        }
        for part in cut
    ]


def found(rows: list[Row], collator: Any = None, **arguments: Any) -> list[tuple[str, str]]:
    """(rule, severity) of each finding on a run of transformers' Trainer."""
    tokenizer = tiny.tokenizer()
    trainer = transformers.Trainer(
        tiny.model(len(tokenizer)),
        replace(tiny.arguments(), remove_unused_columns=False, **arguments),
        collator or transformers.DataCollatorForSeq2Seq(tokenizer),
        OnTheFly(rows),
        processing_class=tokenizer,
    )
    report = truetune.audit(trainer, laws=(), select=RULES)
    return sorted((finding.rule, finding.severity) for finding in report.findings)


OPEN, END = Shape(), tiny.tokenizer().eos_token
NO_STOP = [("eos-not-appended", "error")]
FAULTS: dict[str, tuple[Callable[[], list[Row]], Any, list[tuple[str, str]]]] = {
    "DataCollatorForSeq2Seq": (lambda: rows_of(OPEN), None, NO_STOP),
    "a collator of its own": (lambda: rows_of(OPEN), own_collator, NO_STOP),
    "flattened": (
        lambda: rows_of(OPEN),
        transformers.DataCollatorWithFlattening(),
        NO_STOP,
    ),
    "packed without borders": (lambda: packed(rows_of(OPEN)), None, NO_STOP),
    "answers that end in a full stop": (
        lambda: rows_of(replace(OPEN, answers=tuple(f"{one.rstrip('.!')}." for one in ANSWERS))),
        None,
        NO_STOP,
    ),
    "answers of another language": (
        lambda: rows_of(
            replace(
                OPEN,
                answers=(
                    "海很宽。",
                    "旧钟走得慢。",
                    "春天下雨。",
                    "面包和盐都便宜。",
                    "往北走。",
                    "蜜蜂住在一起。",
                    "墨水是黑的。",
                    "一个走了，一个留下。",
                ),
            )
        ),
        None,
        NO_STOP,
    ),
    "the stop token is masked": (
        lambda: rows_of(Shape(END, is_ending_learned=False)),
        None,
        [("stop-token-never-supervised", "error")],
    ),
}
HEALTHY: dict[str, Callable[[], list[Row]]] = {
    "the stop token is learned": lambda: rows_of(Shape(END)),
    "packed without borders": lambda: packed(rows_of(Shape(END))),
    "a text of its own ends answers": lambda: rows_of(Shape("\n### End")),
    "a line break ends answers": lambda: rows_of(Shape("\n")),
    "continued pretraining": lambda: rows_of(replace(OPEN, is_prompt_learned=True)),
    "windows over a long text": lambda: windows(24, 8),
    "classes": lambda: rows_of(replace(OPEN, answers=("yes", "no") * 4)),
    "all rows are cut": lambda: [
        {key: values[:14] for key, values in row.items()} for row in rows_of(OPEN)
    ],
}


@pytest.mark.parametrize("fault", FAULTS)
def test_no_label_is_a_stop_token(fault: str) -> None:
    build, collator, expected = FAULTS[fault]
    assert found(build(), collator) == expected


@pytest.mark.parametrize("shape", HEALTHY)
def test_healthy(shape: str) -> None:
    assert found(HEALTHY[shape]()) == []


@pytest.mark.parametrize(("ending", "expected"), [("", NO_STOP), (END, [])])
def test_labels_of_an_encoder_decoder(ending: str, expected: list[tuple[str, str]]) -> None:
    tokenizer = tiny.tokenizer()
    rows = [
        {
            "input_ids": tokenizer(f"answer: {topic}")["input_ids"],
            "labels": tokenizer(answer + ending, add_special_tokens=False)["input_ids"],
        }
        for topic, answer in zip(TOPICS, ANSWERS, strict=True)
    ]
    config = transformers.T5Config(
        vocab_size=len(tokenizer), d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2,
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    config.decoder_start_token_id = tokenizer.pad_token_id
    trainer = transformers.Trainer(
        transformers.T5ForConditionalGeneration(config),
        tiny.arguments(),
        transformers.DataCollatorForSeq2Seq(tokenizer),
        OnTheFly(rows),
        processing_class=tokenizer,
    )
    report = truetune.audit(trainer, laws=(), select=RULES)
    assert [(one.rule, one.severity) for one in report.findings] == expected
