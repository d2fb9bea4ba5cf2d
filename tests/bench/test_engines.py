"""The verdict on two engines, without an engine."""

from __future__ import annotations

import math
from typing import Any

import pytest

from bench.engines_agree import NEAR, agreement, line, margin, parted
from truetune.generation.answer_samples import Prompt

PROMPTS = [
    Prompt((1, 2), "", "", (5, 9), "data.jsonl", 1),
    Prompt((3,), "", "", (6, 9), "data.jsonl", 2),
]


def said(
    *answers: list[int], scores: Any = ((-1.0, -0.5), (-2.0, -0.5)), stop: Any = (0.9, 0.8)
) -> dict[str, Any]:
    return {
        "answers": [
            {"ids": ids[:-1], "stop": 9} if ids[-1:] == [9] else {"ids": ids, "stop": None}
            for ids in answers
        ],
        "scores": scores,
        "stop": stop,
        "seconds": 2.0,
        "notes": [],
        "fields": {},
    }


REFERENCE = said([5, 6, 9], [7, 8])


def test_equal_answers_are_equal() -> None:
    row = agreement("a", PROMPTS, REFERENCE, said([5, 6, 9], [7, 8]), {})
    assert (row["verdict"], row["equal"], row["shared"], row["tokens"]) == ("equal", 2, 5, 5)
    assert row["mean"] == 0
    assert row["speed"] == 2.5
    assert line(row).endswith("| equal |")


@pytest.mark.parametrize(
    ("gap", "verdict"), [(0.1, "parts at near ties (margin < 0.2 nats)"), (0.5, "DIFFERENT")]
)
def test_a_parting_is_judged_by_the_margin_of_its_two_tokens(gap: float, verdict: str) -> None:
    other = said([5, 4, 4, 9], [7, 8])
    [place] = parted(PROMPTS, REFERENCE, other)
    assert (place.prefix, place.ours, place.theirs) == ((1, 2, 5), 6, 4)
    row = agreement(
        "a", PROMPTS, REFERENCE, other, {place.prefix: {6: -1.0, 4: -1.0 - gap, 3: -9.0}}
    )
    assert row["verdict"] == verdict
    assert row["margins"] == [pytest.approx(gap)]


def test_a_token_that_is_not_among_the_likeliest_is_far() -> None:
    [place] = parted(PROMPTS, REFERENCE, said([5, 4, 9], [7, 8]))
    assert margin(place, {6: -0.1, 3: -3.0}) == math.inf


def test_going_on_behind_the_end_of_the_reference_is_different() -> None:
    [place] = parted(PROMPTS, REFERENCE, said([5, 6, 9], [7, 8, 8]))
    assert place.ours is None
    assert margin(place, {8: -0.1}) == math.inf


def test_stopping_late_is_a_parting_at_the_stop_token() -> None:
    [place] = parted(PROMPTS, REFERENCE, said([5, 6, 6], [7, 8]))
    assert (place.ours, place.theirs) == (9, 6)


def test_other_log_probabilities_are_different_though_the_answers_are_equal() -> None:
    far = ((-1.0 - NEAR, -0.5 - NEAR), (-2.0 - NEAR, -0.5 - NEAR))
    assert (
        agreement("a", PROMPTS, REFERENCE, said([5, 6, 9], [7, 8], scores=far), {})["verdict"]
        == "DIFFERENT"
    )


def test_what_a_server_does_not_tell_is_not_compared() -> None:
    row = agreement(
        "a", PROMPTS, REFERENCE, said([5, 6, 9], [7, 8], scores=None, stop=(None, None)), {}
    )
    assert (row["mean"], row["stop"], row["verdict"]) == (None, None, "equal")
    assert "| not reported | not reported |" in line(row)


def test_an_engine_that_fails_is_said() -> None:
    row = agreement("a", PROMPTS, REFERENCE, {"failed": "no such module"}, {})
    assert row["notes"] == ["no such module"]
    assert "failed" in line(row)


def test_a_prompt_without_an_answer_is_said_and_not_judged() -> None:
    reply = said([5, 6, 9], [7, 8], scores=None, stop=(None, None))
    reply["answers"][1] = None
    row = agreement("a", PROMPTS, REFERENCE, reply, {})
    assert (row["equal"], row["verdict"]) == (1, "1 not answered; else equal")
