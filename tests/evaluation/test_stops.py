"""Stop calibration: whether P(stop) is high where answers end, and nowhere else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.auditing import tiny
from tests.evaluation.held import examples, write
from truetune.encoding.make_documents_or_reject_rows import Document
from truetune.evaluation.are_stops_likely_only_at_answer_ends import measure_stop_calibration
from truetune.generation.backends.backend import ScoredIds
from truetune.render.rendering import Source

STOP = 3


@pytest.fixture
def documents(tmp_path: Path) -> tuple[Document, ...]:
    return examples(write(tmp_path, tiny.chats(10, turns=2))).documents


def scored(documents: tuple[Document, ...], end: float, inside: float) -> list[ScoredIds]:
    """A model that gives these chances of a stop."""
    chances = [np.where(d.source == Source.STOP, end, inside).astype(np.float32) for d in documents]
    return [ScoredIds(np.zeros(len(chance), np.float32), chance) for chance in chances]


def test_a_model_that_knows(documents: tuple[Document, ...]) -> None:
    found = measure_stop_calibration(documents, scored(documents, 0.96, 0.001), {STOP})
    assert found is not None
    assert (found.ends, found.rows, found.likely, found.false) == (20, 10, 20, 0)
    assert (found.mean, found.median, found.largest) == pytest.approx((0.96, 0.96, 0.001))
    assert found.expected == pytest.approx(0.96 + 0.001 * found.inside / 20)
    assert found.low is not None
    assert found.high is not None
    assert found.low <= found.expected <= found.high
    assert found.error < 0.01
    assert [(part.places, part.ends) for part in found.bins] == [(found.inside, 0), (20, 20)]
    assert not found.unserved


def test_a_model_that_never_learned(documents: tuple[Document, ...]) -> None:
    found = measure_stop_calibration(documents, scored(documents, 1e-4, 1e-4), {STOP})
    assert found is not None
    assert found.high is not None
    assert found.high < 0.1
    assert found.likely == 0


def test_a_model_that_stops_early(documents: tuple[Document, ...]) -> None:
    found = measure_stop_calibration(documents, scored(documents, 0.9, 0.6), {STOP})
    assert found is not None
    assert found.low is not None
    assert found.low > 2
    assert found.false == found.inside
    assert found.largest == pytest.approx(0.6)
    assert found.error > 0.3


def test_perfect_calibration_has_no_error(documents: tuple[Document, ...]) -> None:
    ends = measure_stop_calibration(documents, scored(documents, 1, 0), {STOP})
    assert ends is not None
    share = ends.ends / (ends.ends + ends.inside)
    even = measure_stop_calibration(documents, scored(documents, share, share), {STOP})
    assert even is not None
    assert (ends.error, even.error) == pytest.approx((0, 0), abs=1e-6)
    assert (ends.expected, even.expected) == pytest.approx((1, 1), abs=1e-5)


def test_a_stop_that_serving_does_not_know_is_named(documents: tuple[Document, ...]) -> None:
    found = measure_stop_calibration(
        documents, scored(documents, 0.01, 0.001), {7}, lambda id: f"<{id}>"
    )
    assert found is not None
    assert found.unserved == {f"<{STOP}>": 20}


@pytest.mark.parametrize("stop", [None, "none"])
def test_nothing_is_told_where_nothing_can_be(documents: tuple[Document, ...], stop: Any) -> None:
    if stop is None:
        silent = [ScoredIds(np.zeros(len(d.ids), np.float32)) for d in documents]
        assert measure_stop_calibration(documents, silent, {STOP}) is None
    else:
        bare = tuple(
            d._replace(supervised=d.supervised & (d.source != Source.STOP)) for d in documents
        )
        assert measure_stop_calibration(bare, scored(bare, 0.9, 0.1), {STOP}) is None


def test_chances_that_are_no_numbers_are_not_hidden(documents: tuple[Document, ...]) -> None:
    found = measure_stop_calibration(documents, scored(documents, float("nan"), 0.1), {STOP})
    assert found is not None
    assert np.isnan([found.mean, found.expected]).all()
    assert found.likely == 0
