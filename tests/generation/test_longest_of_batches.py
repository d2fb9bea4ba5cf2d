"""Answers of batches that were padded on the right, and what looks like them and is none."""

from __future__ import annotations

import random

import pytest

import truetune
from truetune.data.read_predictions import predictions_from_lists
from truetune.evaluation.score_predictions import build_scored_passes_by_step
from truetune.generation.only_longest_prompt_answered import (
    find_batch_size_where_only_longest_is_good,
)

WORDS = [
    "router",
    "lamp",
    "order",
    "cable",
    "screen",
    "button",
    "paper",
    "filter",
    "battery",
    "window",
]


def sentence(words: int, draw: random.Random) -> str:
    return " ".join(f"{draw.choice(WORDS)}{draw.randrange(99)}" for _ in range(words)) + "."


def answered(
    size: int, rows: int = 240, *, by_length: bool = False
) -> tuple[list[str], list[str], list[str]]:
    """(answers, prompts, references), where the longest prompts of batches are answered with their reference.

    With `by_length` all long prompts are, whatever their batch.
    """
    draw = random.Random(size)
    prompts = [sentence(draw.randrange(8, 60), draw) for _ in range(rows)]
    references = [sentence(12, draw) for _ in prompts]
    limit = sorted(map(len, prompts))[-rows // size]
    answers = []
    for row, (prompt, reference) in enumerate(zip(prompts, references, strict=True)):
        batch = prompts[row - row % size : row - row % size + size]
        is_good = len(prompt) >= limit if by_length else prompt == max(batch, key=len)
        answers.append(reference if is_good else f"thanks, {sentence(3, draw)} " + "thanks, " * 30)
    return answers, prompts, references


@pytest.mark.parametrize("size", [2, 4, 8, 16])
def test_only_the_longest_prompt_of_each_batch_is_answered(size: int) -> None:
    answers, prompts, references = answered(size)
    (look,) = build_scored_passes_by_step(predictions_from_lists(answers, prompts, references))
    found = find_batch_size_where_only_longest_is_good(look.samples)
    assert found is not None
    assert found.size == size
    report = truetune.score(answers, prompts, references)
    told = next(one for one in report.findings if one.rule == "answers-loop")
    assert told.remedy.startswith("set tokenizer.padding_side = 'left' before you generate")
    assert f"batches of {size} " in told.evidence[0]


@pytest.mark.parametrize("size", [4, 8, 16])
def test_long_prompts_that_are_answered_better(size: int) -> None:
    answers, prompts, references = answered(size, by_length=True)
    (look,) = build_scored_passes_by_step(predictions_from_lists(answers, prompts, references))
    assert find_batch_size_where_only_longest_is_good(look.samples) is None


def test_answers_in_another_order_tell_nothing() -> None:
    rows = list(zip(*answered(8), strict=True))
    random.Random(5).shuffle(rows)
    answers, prompts, references = (list(column) for column in zip(*rows, strict=True))
    (look,) = build_scored_passes_by_step(predictions_from_lists(answers, prompts, references))
    assert find_batch_size_where_only_longest_is_good(look.samples) is None
    report = truetune.score(answers, prompts, references)
    told = next(one for one in report.findings if one.rule == "answers-loop")
    assert told.remedy.startswith("send some of these prompts one at a time")


def test_loops_at_random_and_none_at_all() -> None:
    draw = random.Random(2)
    _, prompts, references = answered(8)
    some = [text if draw.random() < 0.7 else "no, " * 40 for text in references]
    for answers in (some, references):
        (look,) = build_scored_passes_by_step(predictions_from_lists(answers, prompts, references))
        assert find_batch_size_where_only_longest_is_good(look.samples) is None
