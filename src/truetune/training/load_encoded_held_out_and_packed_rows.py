"""Loads the rows of a run: encoded, with some of them held out, and packed.

Rows come from the cache of encodings as an Arrow table on disk; packs are lists of their numbers, and joined when a
batch is made. So a run needs memory for the numbers alone, and pays with a few copies a batch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truetune.encoding.encode_data_set import Encoded, Progress, encode
from truetune.encoding.pack_documents import pack_best_fit
from truetune.errors import DataError, UsageError
from truetune.render.rendering import IGNORED
from truetune.settings.run_spec import RunSpec
from truetune.training.training_recipe import Choice

# Chosen, not measured: of 1,000 rows 20. Twice as many take data from small sets, half as many make
# the held-out loss jump from one evaluation to the next.
HELD_OUT_SHARE = 0.02
"""The share of the rows that is held out where no evaluation data is named"""
# Chosen, not measured: fewer than 8 say nothing about loss; more than 200 cost evaluation time and
# narrow the interval by little. Sets below 80 rows keep all their rows.
MIN_HELD_OUT, MAX_HELD_OUT = 8, 200
"""Rows that are held out at least (of 10 times as many), and at most"""


class TrainingRows:
    """Encoded rows, one by one or in packs, from which a data loader takes its batches."""

    def __init__(self, table: Any, packs: Sequence[Sequence[int]]) -> None:
        self.table = table.with_format("numpy")
        self.packs = packs

    def __len__(self) -> int:
        return len(self.packs)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self[number] for number in range(len(self)))

    def __getitem__(self, number: int) -> dict[str, Any]:
        """A row; a blank one, of which nothing is supervised, past the end (`EvenSampler` asks for some)."""
        # Two tokens, the least that a shifted loss can be computed of.
        if number >= len(self):
            start = {name: value[:2] for name, value in self[0].items() if name != "seq_lengths"}
            return {**start, "labels": np.full_like(start["labels"], IGNORED)}
        # Packs are joined when they are read and not on disk: another max_length or packing then
        # needs no new encoding.
        documents = [self.table[i] for i in self.packs[number]]
        columns = {
            name: np.concatenate([d[name] for d in documents])
            for name in documents[0]
            if name not in ORIGIN_COLUMNS
        }
        if len(documents) > 1:
            # Only for packs: collators take its presence as the sign that attention must be kept
            # apart.
            columns["seq_lengths"] = np.array([len(d["input_ids"]) for d in documents])
        return columns

    def origins(self, number: int) -> list[tuple[str, int]]:
        """The (file, line) of each document of a row."""
        packs = self.packs[number : number + 1]
        return [
            (str(d["file"]), int(d["line"]))
            for pack in packs
            for d in (self.table[i] for i in pack)
        ]


ORIGIN_COLUMNS = ("file", "line", "row")


@dataclass(frozen=True)
class TrainingData:
    """The rows that a run trains on, and those that it holds out."""

    train: TrainingRows
    held_out: TrainingRows | None
    encoded: Encoded
    documents: int
    """Examples that are trained on"""
    tokens: int
    """That are trained on"""
    held_rows: frozenset[int]
    """Numbers of the rows of `data` that are held out; empty where evaluation data is named"""
    choices: tuple[Choice, ...]
    """What was chosen for the user"""


def load_training_data(spec: RunSpec, *, progress: Progress | None = None) -> TrainingData:
    """Encode `data` (and `eval_data`) through the cache, hold rows out, and pack them. Raises
    DataError where nothing is left to train on.

    `spec` is a recipe's: max_length and encode.packing are set.
    """
    # Encoded unpacked: the cache then serves runs with and without packing, and rows can be held
    # out one by one.
    plain = spec.encode.model_copy(
        update={"packing": "none", "sources": True, "trainer": "transformers"}
    )
    unpacked = spec.model_copy(update={"encode": plain})
    encoded = encode(unpacked, progress=progress)
    table = open_nonempty_encoded_table(encoded, spec.data)
    numbers = np.asarray(table.with_format("numpy")["row"])
    chosen = choose_held_out_by_hash(numbers, 0 if spec.eval_data else spec.training.val_size)
    # A row that is held out while its copy is trained on would make the held-out loss look better
    # than it is.
    held = held_out_rows_with_their_copies(token_ids_of_rows_as_bytes(table), numbers, chosen)
    apart = np.isin(numbers, sorted(held))
    held_out: TrainingRows | None = None
    if spec.eval_data:
        other = open_nonempty_encoded_table(
            encode(unpacked.model_copy(update={"data": spec.eval_data})), spec.eval_data
        )
        held_out = TrainingRows(other, _pack_for_each_document(range(len(other))))
    elif held:
        held_out = TrainingRows(table, _pack_for_each_document(np.flatnonzero(apart).tolist()))
    kept = np.flatnonzero(~apart).tolist()
    lengths = _row_lengths(table)[kept].tolist()
    packs = _pack_for_each_document(kept)
    if spec.encode.packing != "none":
        # Held-out rows are never packed: their loss must not depend on which rows happen to share
        # one.
        packs = [
            [kept[i] for i in pack]
            for pack in pack_best_fit(lengths, spec.max_length or max(lengths))
        ]
    choices = tuple(choices_of_encoded_and_held_rows(spec, held, encoded.manifest))
    return TrainingData(
        TrainingRows(table, packs), held_out, encoded, len(kept), sum(lengths), held, choices
    )


def open_nonempty_encoded_table(encoded: Encoded, files: Iterable[str]) -> Any:
    """The rows that were written. Raises DataError where there are none."""
    if not encoded.counts["packs"]:
        raise DataError(
            f"{', '.join(files)}: no example is left to train on; see"
            f" {encoded.folder}/dropped.jsonl"
        )
    return encoded.dataset()


def _row_lengths(table: Any) -> NDArray[np.int64]:
    """(rows,) tokens of each row of a table."""
    # From Arrow's offsets, without making a Python object of any row.
    chunks = table.data.table["input_ids"].chunks
    return np.concatenate([np.asarray(chunk.value_lengths(), dtype=np.int64) for chunk in chunks])


def _pack_for_each_document(places: Iterable[int]) -> list[list[int]]:
    """A pack for each document alone."""
    return [[i] for i in places]


def choices_of_encoded_and_held_rows(
    spec: RunSpec, held: frozenset[int], manifest: Mapping[str, Any]
) -> Iterator[Choice]:
    """What was chosen for the rows as a whole, as notices to the user: which are encoded, and which
    held out.
    """
    for notice in manifest["notices"]:
        yield Choice(
            "data",
            f"{manifest['counts']['encoded']:,} of {manifest['counts']['rows']:,} rows",
            notice,
        )
    if held and spec.training.val_size is None:
        yield Choice(
            "training.val_size",
            len(held),
            "rows held out, to be evaluated and answered; 0 trains on all",
        )


def choose_held_out_by_hash(numbers: Any, size: float | None) -> frozenset[int]:
    """Which rows are held out, chosen by a hash of their number: the same in every run on the same
    data.
    """
    rows = np.unique(numbers).tolist()
    if size is None:
        count = (
            min(MAX_HELD_OUT, max(MIN_HELD_OUT, round(HELD_OUT_SHARE * len(rows))))
            if len(rows) >= 10 * MIN_HELD_OUT
            else 0
        )
    else:
        # scikit-learn's convention, which axolotl and LLaMA-Factory follow: below 1 a share, else
        # rows.
        count = round(size * len(rows)) if size < 1 else int(size)
        if not 0 <= count < len(rows):
            raise UsageError(
                f"training.val_size is {size:g}, and the data has {len(rows):,} rows: hold out"
                " fewer; 0 holds out none"
            )
    # By a hash and not by a seed: rows that are appended to the file later leave most of the
    # held-out ones as they were.
    return frozenset(sorted(rows, key=_hash_of_row_number_for_shuffle)[: min(count, len(rows) - 1)])


def held_out_rows_with_their_copies(
    texts: Iterable[bytes], numbers: Any, held: frozenset[int]
) -> frozenset[int]:
    """The rows that are held out, and those with the same text as one of them; none where no other row is left.

    Args:
        texts: of each example, as bytes.
        numbers: (examples,) the row that each comes from; a row may give several.
        held: numbers of the rows that were drawn.
    """
    if not held:
        return held
    # 8 bytes: among 10 million rows two different ones collide with a chance of 3 in a million, and
    # then one row more is held out.
    digests = [hashlib.blake2b(text, digest_size=8).digest() for text in texts]
    rows = numbers.tolist()
    held_digests = {digest for digest, row in zip(digests, rows, strict=True) if row in held}
    with_theirs = held | {
        row for digest, row in zip(digests, rows, strict=True) if digest in held_digests
    }
    # Where every row is a copy of a held-out one, nothing would be left to train on.
    return with_theirs if len(with_theirs) < len(set(rows)) else frozenset()


def token_ids_of_rows_as_bytes(table: Any) -> Iterator[bytes]:
    """The token ids of each row, as bytes."""
    return (np.asarray(ids.values).tobytes() for ids in table.data.table["input_ids"])


def highest_token_id(rows: TrainingRows) -> int:
    """The highest id of the table that rows are taken from."""
    column = rows.table.data.table["input_ids"]
    return max(int(np.asarray(chunk.flatten()).max()) for chunk in column.chunks if len(chunk))


def _hash_of_row_number_for_shuffle(number: int) -> bytes:
    """A hash of a row's number, 8 bytes: sorting by it is a fixed shuffle."""
    return hashlib.blake2b(str(number).encode(), digest_size=8).digest()
