"""Metrics of samples whose scores are known."""

from __future__ import annotations

import pytest

from truetune.evaluation.average_answer_metrics import RowGroup, measure_answers
from truetune.evaluation.confidence_intervals_over_rows import mcnemar_p, wilson_interval
from truetune.generation.answer_parsers_named_by_user import make_parser
from truetune.generation.answer_samples import Answer, Prompt, Sample
from truetune.generation.score_answer_by_prompt_and_reference import score_answer

NUMBER = make_parser("number")


def sample(
    i: int, said: str, wanted: str, *, seen: bool = False, file: str = "a.jsonl", cut: bool = False
) -> Sample:
    reference = (1,) * (len(wanted.split()) + 1)
    prompt = Prompt((1, i), f"question {i}", wanted, reference, file, i, seen)
    answer = Answer((1,) * len(said.split()), said, None if cut else 2)
    return Sample(prompt, answer, score_answer(prompt, answer, parse=NUMBER))


def values(group: RowGroup) -> dict[str, float]:
    return {measure.name: round(measure.value, 3) for measure in group.measures}


def test_the_measures_of_four_answers() -> None:
    found = measure_answers(
        [
            sample(0, "It is 5", "It is 5"),
            sample(1, "It is 6", "It is 5"),
            sample(2, "none", "It is 5", cut=True),
            sample(3, "5", "It is 5"),
        ]
    )
    (group,) = found.groups
    assert (group.name, group.samples) == ("held out", 4)
    assert values(group) == {
        "stopped": 0.75,
        "exact": 0.25,
        "parsed": 0.75,
        "agrees": 0.5,
        "overlap": round((1 + 2 / 3 + 0 + 0.5) / 4, 3),
        "length ratio": 0.688,
    }
    agrees = group.metric_by_name("agrees")
    assert agrees is not None
    assert (agrees.low, agrees.high) == wilson_interval(2, 4)


def test_rows_that_were_trained_on_are_apart() -> None:
    mixed = [sample(0, "5", "5", seen=True), sample(1, "6", "5"), sample(2, "5", "5", seen=True)]
    held, seen = measure_answers(mixed).groups
    assert (held.name, values(held)["agrees"], seen.name, values(seen)["agrees"]) == (
        "held out",
        0,
        "trained on",
        1,
    )
    (whole,) = measure_answers(mixed, seen_known=False).groups
    assert (whole.name, whole.samples) == ("all", 3)
    (only,) = measure_answers(mixed[:1]).groups
    assert only.name == "trained on"
    assert measure_answers([]).groups == ()


def test_each_file_counts_the_same_in_their_mean() -> None:
    rows = [sample(i, "5", "5", file="long.jsonl") for i in range(6)] + [
        sample(9, "4", "5", file="short.jsonl")
    ]
    whole, long, short, mean = measure_answers(rows).groups
    assert [group.name for group in (long, short, mean)] == [
        "long.jsonl",
        "short.jsonl",
        "mean of files",
    ]
    assert values(whole)["agrees"] == round(6 / 7, 3)
    assert values(mean)["agrees"] == 0.5


def test_against_another_model() -> None:
    mine = [sample(i, "5", "5") for i in range(8)] + [sample(8, "4", "5", cut=True)]
    theirs = [sample(i, "4" if i < 6 else "5", "5") for i in reversed(range(9))] + [
        sample(50, "5", "5")
    ]
    found = {paired.name: paired for paired in measure_answers(mine, others=theirs).paired}
    agrees = found["agrees"]
    assert (agrees.of, agrees.better, agrees.worse, agrees.p) == (9, 6, 1, mcnemar_p(6, 1))
    assert agrees.change == pytest.approx(5 / 9)
    assert (found["stopped"].better, found["stopped"].worse) == (0, 1)
    assert measure_answers(mine).paired == ()
