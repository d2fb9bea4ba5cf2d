"""What the rules on pairs are made of."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from truetune.checks.pairs.evidence.answer_ids_texts_and_cuts_of_pairs import wilson_interval
from truetune.checks.pairs.evidence.bad_answer_signs import (
    HARM,
    OpenEnds,
    begins_with_refusal,
    ends_within_sentence,
    is_marked_as_cut,
)
from truetune.checks.pairs.evidence.token_edit_distance import (
    is_within_edits,
    lower_bound_of_edits,
    without_common_ends,
)
from truetune.data.pair_score_columns import PairScores, pair_scores_of_row

IDS = st.lists(st.integers(0, 3), max_size=12)


def common(one: list[int], other: list[int]) -> int:
    """The length of the longest common subsequence, by the textbook."""
    best = [0] * (len(other) + 1)
    for a in one:
        before = 0
        for j, b in enumerate(other, 1):
            before, best[j] = best[j], before + 1 if a == b else max(best[j], best[j - 1])
    return best[-1]


@given(IDS, IDS)
def test_edits_are_those_of_the_textbook(one: list[int], other: list[int]) -> None:
    edits = len(one) + len(other) - 2 * common(one, other)
    a, b = np.array(one, dtype=np.int32), np.array(other, dtype=np.int32)
    short, shorter = without_common_ends(a, b)
    assert len(short) + len(shorter) - 2 * common(short.tolist(), shorter.tolist()) == edits
    assert lower_bound_of_edits(a, b) <= edits
    assert not edits or not is_within_edits(a, b, edits - 1)
    assert is_within_edits(a, b, edits)


def test_wilson_is_the_published_interval() -> None:
    assert wilson_interval(81, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert wilson_interval(0, 0) == (0, 1)
    assert wilson_interval(20, 20) == pytest.approx((0.8389, 1.0), abs=5e-5)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("I'm sorry, but I can't help with that.", True),
        ("I\u2019m sorry, I cannot do this.", True),
        ("I cannot provide medical advice.", True),
        ("As an AI language model, I can't feel.", True),
        ("Sorry, but I am not able to open links.", True),
        ("Unfortunately, I cannot help.", True),
        ("I'm sorry to hear that. Here is what you can do.", False),
        ("I can help with that!", False),
        ("Unfortunately, the shop is closed.", False),
        ("You cannot provide it.", False),
        ("I cannot recommend this book enough.", False),
        ("", False),
    ],
)
def test_refusals(text: str, wanted: bool) -> None:
    assert begins_with_refusal(text) is wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("It is open. On Sunday it is open from nine to the", True),
        ("First. Then do this, then that, and after all,", True),
        ("It is open. All that you need stands on shop.example/help", False),
        ("It is open. We hope to see you soon, your Fjord", False),
        ("```python\nprint(1)", True),
        ("```python\nprint(1)\n```", False),
        ("It is open. [truncated]", True),
        ("Paris", False),
        ("It is open from nine to five on all days.", False),
        ("A list. Of:\n- one\n- two", False),
        ("an answer that never writes any full stop at all", False),
        ("", False),
    ],
)
def test_cut_answers(text: str, wanted: bool) -> None:
    assert (is_marked_as_cut(text) or ends_within_sentence(text)) is wanted


ITEMS = (
    "wallet", "kettle", "lamp", "ladder", "router", "mirror", "candle", "basket", "blanket", "carpet", "toaster", "jar",
)  # fmt: skip


@pytest.mark.parametrize(
    ("ends", "wanted"),
    [
        (["Best regards, your shop team"], 0),
        (["Best regards, your shop team", "that is what we are here for", "have a nice day"], 0),
        ([f"then just look at the {item} again" for item in ITEMS], 0),
        ([f"please send the {item} back or log in" for item in ITEMS], 0),
        ([f"in this case the {item} is for a" for item in ITEMS], 40),
        ([f"in this case the {item} of {other}" for item in ITEMS for other in ("the", "wo")], 40),
        ([f"Dann ist der {item} für {end}" for item in ITEMS for end in ("die", "Ihn", "gut")], 36),
    ],
)
def test_open_ends_of_cut_answers_and_of_whole_ones(ends: list[str], wanted: int) -> None:
    found = OpenEnds()
    for number in range(36 if wanted == 36 else 40):
        found.add(f"It is open. {ends[number % len(ends)]}")
    assert found.counts_of_cut_endings().total() == wanted


def test_priors_take_no_long_over_hostile_texts() -> None:
    started = time.perf_counter()
    for text in (
        "a " * 500_000,
        "sorry " * 200_000,
        "." * 1_000_000,
        "[" * 1_000_000,
        " " * 1_000_000 + "a",
    ):
        is_marked_as_cut(text)
        ends_within_sentence(text)
        OpenEnds().add(text)
        begins_with_refusal(text)
        HARM.search(text)
    assert time.perf_counter() - started < 5


@pytest.mark.parametrize(
    ("row", "wanted"),
    [
        ({"score_chosen": 1, "score_rejected": "2.5"}, PairScores(1.0, 2.5)),
        ({"Chosen Rating": 4, "rejected.rating": 5}, PairScores(4.0, 5.0)),
        ({"reward_margin": -1}, PairScores(-1.0, 0.0)),
        ({"score_chosen": 1}, None),
        ({"chosen_rank": 1, "rejected_rank": 2}, PairScores(1.0, 2.0, is_rank=True)),
        ({"score_chosen": float("nan"), "score_rejected": 1}, None),
        ({"score_chosen": True, "score_rejected": 1}, None),
        ({"score_chosen": "good", "score_rejected": "bad"}, None),
        ({}, None),
    ],
)
def test_scores(row: dict[str, object], wanted: PairScores | None) -> None:
    assert pair_scores_of_row(row) == wanted
