"""Runs that train a column without information beside one with much, and healthy ones with all kinds of metadata."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest
import transformers
from datasets import Dataset

import truetune
from tests.auditing import tiny
from truetune.probe.follow_canary_through_maps import (
    REPEATED_METHODS,
    ROW_CHOOSING_METHODS,
    follow_datasets,
)

WORDS = (
    "harbour",
    "lantern",
    "keeper",
    "storm",
    "anchor",
    "captain",
    "tide",
    "gull",
    "cabin",
    "barrel",
    "ladder",
    "kitchen",
    "window",
    "garden",
    "silver",
    "copper",
    "market",
    "bridge",
    "winter",
    "summer",
    "letter",
    "paper",
    "stone",
    "river",
    "field",
    "horse",
    "corner",
    "music",
    "picture",
    "table",
    "engine",
    "signal",
)
CHARACTERS = "船港灯塔风暴守夜人海浪沙滩窗户花园银色铜市场桥冬夏信纸石河"
ROWS, BATCHES = 240, 10
Text = Callable[[int], str]


def prose(words: int = 14, salt: str = "") -> Text:
    return lambda i: " ".join(random.Random(f"{salt}{i}").choices(WORDS, k=words)) + "."


def rows_of(**columns: Text) -> list[dict[str, str]]:
    return [{name: text(i) for name, text in columns.items()} for i in range(ROWS)]


def question(i: int) -> str:
    return f"Problem {i}: what of the {prose(6, 'q')(i)}"


def within_the_prompt(i: int) -> str:
    """Words of the question in another order: single words stand in the prompt, runs of them do not."""
    words = question(i).split()
    random.Random(i).shuffle(words)
    return " ".join(words * 2)


@pytest.fixture
def followed() -> Iterator[None]:
    """As in a process of `truetune run --canary`; afterwards no data set is followed any more."""
    import datasets

    kept = {
        name: getattr(Dataset, name)
        for name in (*REPEATED_METHODS, *ROW_CHOOSING_METHODS, "__init__")
    }
    joined = datasets.concatenate_datasets
    follow_datasets()
    yield
    for name, method in kept.items():
        setattr(Dataset, name, method)
    datasets.concatenate_datasets = joined


def findings(
    rows: list[dict[str, str]], prompt: str, answer: str, *, canary: bool
) -> tuple[truetune.Finding, ...]:
    """Of rule BAT018, where the column `answer` is trained behind the column `prompt`."""
    tokenizer = tiny.tokenizer()

    def encode(row: dict[str, str]) -> dict[str, list[int]]:
        chat = [
            {"role": "user", "content": row[prompt]},
            {"role": "assistant", "content": row[answer]},
        ]
        return tiny.encoded([{"messages": chat}], tokenizer)[0]

    given = Dataset.from_list(rows)
    made = given.map(encode, remove_columns=given.column_names)
    collator = transformers.DataCollatorForSeq2Seq(tokenizer)
    trainer = transformers.Trainer(
        tiny.model(),
        tiny.arguments(per_device_train_batch_size=4),
        collator,
        made,
        processing_class=tokenizer,
    )
    report = truetune.audit(
        trainer, given=None if canary else given, laws=(), batches=BATCHES, canary=canary,
        select="supervised-answers-all-alike",
    )  # fmt: skip
    return report.findings


STATES = ("CONTINUE", "CONCLUDE", "RETRY")
SAME: Text = lambda i: "CONCLUDE"  # noqa: E731
NEARLY: Text = lambda i: "CONCLUDE" if i % 30 else prose(3)(i)  # noqa: E731
WRONG: dict[str, tuple[list[dict[str, str]], str, str, str]] = {
    "a state": (rows_of(problem=question, state=SAME, training_text=prose(30)), "problem", "state", "training_text"),
    "nearly a state": (rows_of(ask=question, flag=NEARLY, solution=prose(30)), "ask", "flag", "solution"),
    "words of the prompt": (rows_of(q=question, s=SAME, full=within_the_prompt), "q", "s", "full"),
    "beside ids and links": (
        rows_of(x=question, y=SAME, z=prose(20), id=lambda i: f"row-{i:05d}",
                url=lambda i: f"https://example.org/{prose(3)(i).replace(' ', '/')}"),
        "x", "y", "z",
    ),
    "a source": (rows_of(task=question, source=lambda i: "web", reply=prose(12)), "task", "source", "reply"),
    "a licence": (
        rows_of(text=question, note=lambda i: "This row may be used by anybody for any purpose.", story=prose(25)),
        "text", "note", "story",
    ),
    "Chinese answers": (
        rows_of(wen=question, zt=SAME, da=lambda i: "".join(random.Random(i).choices(CHARACTERS, k=40))),
        "wen", "zt", "da",
    ),
    "a chain of thought": (
        rows_of(question=question, verdict=lambda i: "correct", steps=lambda i: "Step 1. " + prose(30)(i)),
        "question", "verdict", "steps",
    ),
    "the model's name": (
        rows_of(user=question, model=lambda i: "assistant-v2", answer=prose(18)), "user", "model", "answer",
    ),
    "a date": (rows_of(user=question, date=lambda i: "2024-05-01", body=prose(18)), "user", "date", "body"),
}  # fmt: skip
HEALTHY: dict[str, tuple[list[dict[str, str]], str, str]] = {
    "answers": (rows_of(problem=question, state=SAME, training_text=prose(30)), "problem", "training_text"),
    "answers and their translation": (rows_of(q=question, a=prose(12), a_de=prose(14, "de")), "q", "a"),
    "answers and prompts of others": (rows_of(q=question, a=prose(12), alternative_prompt=prose(25, "p")), "q", "a"),
    "short answers beside their solution": (
        rows_of(q=question, result=lambda i: str(i * 37 % 211), solution=prose(30)), "q", "result",
    ),
    "references for an evaluation": (rows_of(q=question, a=prose(9), reference=prose(40, "r")), "q", "a"),
    "names": (rows_of(q=question, name=prose(2), biography=prose(40, "b")), "q", "name"),
    "labels": (
        rows_of(text=question, label=lambda i: ("good", "bad")[i % 2], id=lambda i: f"{i:08x}"), "text", "label",
    ),
    "labels and links": (
        rows_of(text=question, label=lambda i: "ABCD"[i % 4], url=lambda i: f"https://example.org/{prose(4)(i)}"),
        "text", "label",
    ),
    "labels and a constant notice": (
        rows_of(text=question, label=lambda i: STATES[i % 3], licence=lambda i: prose(20)(1)), "text", "label",
    ),
    "grades": (rows_of(essay=question, grade=lambda i: str(i % 6 + 1), author=prose(2)), "essay", "grade"),
}  # fmt: skip


@pytest.mark.usefixtures("followed")
@pytest.mark.parametrize("canary", [True, False], ids=["canary", "given"])
@pytest.mark.parametrize("case", WRONG)
def test_the_wrong_column_is_an_error_that_names_both(case: str, canary: bool) -> None:
    rows, prompt, answer, meant = WRONG[case]
    (finding,) = findings(rows, prompt, answer, canary=canary)
    assert finding.severity == "error"
    assert f"{meant}, which contains more, has no label" in finding.message
    # A canary marks neither a date nor a column that steers a template: what they become is not known.
    assert f"the labels are on {answer}, and" in finding.message or (
        canary and answer in ("date", "model")
    )


@pytest.mark.usefixtures("followed")
@pytest.mark.parametrize("canary", [True, False], ids=["canary", "given"])
@pytest.mark.parametrize("case", HEALTHY)
def test_healthy_answers_are_silent_beside_other_columns(case: str, canary: bool) -> None:
    rows, prompt, answer = HEALTHY[case]
    assert not findings(rows, prompt, answer, canary=canary)


@pytest.mark.usefixtures("followed")
@pytest.mark.parametrize("canary", [True, False], ids=["canary", "given"])
def test_labels_beside_their_explanations_are_a_note(canary: bool) -> None:
    rows = rows_of(
        premise=question, label=lambda i: ("yes", "no", "maybe")[i % 3], explanation=prose(20)
    )
    (finding,) = findings(rows, "premise", "label", canary=canary)
    assert finding.severity == "info"
