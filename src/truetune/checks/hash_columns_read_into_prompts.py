"""Hashes the columns that stand beside a row's question and answer and that a script reads into its
prompts, so that such rows are not taken for duplicates.

A file of questions, answers and contracts is read as questions and answers, where no script is followed. Two rows with
one question and one answer are different rows where the script puts their contracts into the prompt.

The trade-off: a column counts where a script reads it by name, whatever it does with it. So a name that only numbers
rows can be left out (`ids=False`): copies of a row have other numbers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence, Set
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from truetune.data.conversation import Conversation

NUMBERS_ROWS = re.compile(
    r"(?:.*[_\- ])?(?:id|ids|uid|uuid|guid|idx|index|key|hash|row|line|number|nr|no)", re.I
)
"""Names of columns that tell rows apart and say nothing: `id`, `ticket_id`, `row_number`"""


def hash_read_columns_unused_by_format(
    rows: Sequence[Conversation], columns_read: Set[str], *, ids: bool = True
) -> NDArray[np.uint64]:
    """(rows,) of the columns that the format does not use and a script reads; 0 where there are none."""
    texts = [
        "\0".join(_name_value_texts_of_columns_read(row, columns_read, ids=ids)) for row in rows
    ]
    digests = [
        blake2b(text.encode("utf-8", "replace"), digest_size=8).digest() if text else bytes(8)
        for text in texts
    ]
    return np.frombuffer(b"".join(digests), dtype=np.uint64)


def _name_value_texts_of_columns_read(
    row: Conversation, columns_read: Set[str], *, ids: bool
) -> list[str]:
    """The columns of a row that count, each with its value."""
    names = [
        name
        for name in row.unused
        if name in columns_read and (ids or not NUMBERS_ROWS.fullmatch(name))
    ]
    return [f"{name}={(row.raw or {}).get(name)}" for name in names]
