"""Packing wastes little, loses nothing, and is quick."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from truetune.encoding.pack_documents import pack_best_fit


@given(
    st.integers(1, 50).flatmap(
        lambda n: st.tuples(st.just(n), st.lists(st.integers(1, n), max_size=60))
    )
)
def test_every_document_once_and_no_row_too_long(given: tuple[int, list[int]]) -> None:
    limit, lengths = given
    rows = pack_best_fit(lengths, limit)
    assert sorted(i for row in rows for i in row) == list(range(len(lengths)))
    assert all(0 < sum(lengths[i] for i in row) <= limit for row in rows)
    assert rows == sorted(sorted(row) for row in rows)
    fewest = -(-sum(lengths) // limit)
    assert (
        len(rows) <= 11 / 9 * max(fewest, sum(2 * n > limit for n in lengths)) + 6 / 9
        or len(lengths) < 2 * fewest
    )


def test_a_document_goes_where_it_leaves_the_least_room() -> None:
    assert pack_best_fit([6, 5, 4, 3], 10) == [[0, 2], [1, 3]]
    assert pack_best_fit([7, 8, 2, 3], 10) == [[0, 3], [1, 2]]
    assert pack_best_fit([], 10) == []


def test_full_rows_on_lengths_like_those_of_chats() -> None:
    rng = random.Random(0)
    lengths = [min(4096, int(rng.lognormvariate(5.5, 0.9)) + 8) for _ in range(6000)]
    rows = pack_best_fit(lengths, 4096)
    assert sum(lengths) / (len(rows) * 4096) > 0.99


def test_a_document_longer_than_a_row() -> None:
    with pytest.raises(ValueError, match="11 tokens does not fit into 10"):
        pack_best_fit([11], 10)
