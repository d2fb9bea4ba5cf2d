"""Rows: the data of a run, encoded, with some of it held out, and packed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truetune.encoding.encode_run import Encoded, Progress, encode
from truetune.encoding.packing import best_fit
from truetune.errors import DataError, UsageError
from truetune.render.rendering import IGNORED
from truetune.spec.run import RunSpec
from truetune.training.recipe import Choice

HELD_OUT = 0.02
"""The share of the rows that is held out where no evaluation data is named"""
FEWEST, MOST = 8, 200
"""Rows that are held out at least (of 10 times as many), and at most"""


class Rows:
    """Encoded rows, one by one or in packs: what a data loader takes its batches from."""

    def __init__(self, table: Any, packs: Sequence[Sequence[int]]) -> None:
        self.table = table.with_format("numpy")
        self.packs = packs

    def __len__(self) -> int:
        return len(self.packs)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self[number] for number in range(len(self)))

    def __getitem__(self, number: int) -> dict[str, Any]:
        """A row; a blank one, of which nothing is supervised, past the end (`processes.Even` asks for some)."""
        if number >= len(self):
            start = {name: value[:2] for name, value in self[0].items() if name != "seq_lengths"}
            return {**start, "labels": np.full_like(start["labels"], IGNORED)}
        documents = [self.table[i] for i in self.packs[number]]
        made = {
            name: np.concatenate([d[name] for d in documents])
            for name in documents[0]
            if name not in ORIGIN
        }
        if len(documents) > 1:
            made["seq_lengths"] = np.array([len(d["input_ids"]) for d in documents])
        return made

    def origins(self, number: int) -> list[tuple[str, int]]:
        """(file, line) of each document of a row."""
        packs = self.packs[number : number + 1]
        return [
            (str(d["file"]), int(d["line"]))
            for pack in packs
            for d in (self.table[i] for i in pack)
        ]


ORIGIN = ("file", "line", "row")


@dataclass(frozen=True)
class Data:
    """What a run trains on."""

    train: Rows
    held_out: Rows | None
    encoded: Encoded
    documents: int
    """Examples that are trained on"""
    tokens: int
    """That are trained on"""
    held_rows: frozenset[int]
    """Numbers of the rows of `data` that are held out; empty where evaluation data is named"""
    choices: tuple[Choice, ...]
    """What was chosen for the user"""


def load(spec: RunSpec, *, progress: Progress | None = None) -> Data:
    """Encode `data` (and `eval_data`) through the cache. Raises DataError where nothing is left to train on.

    `spec` is a recipe's: max_length and encode.packing are set.
    """
    plain = spec.encode.model_copy(
        update={"packing": "none", "sources": True, "trainer": "transformers"}
    )
    unpacked = spec.model_copy(update={"encode": plain})
    encoded = encode(unpacked, progress=progress)
    table = table_of(encoded, spec.data)
    numbers = np.asarray(table.with_format("numpy")["row"])
    chosen = hold_out(numbers, 0 if spec.eval_data else spec.training.val_size)
    held = with_copies(texts_of(table), numbers, chosen)
    apart = np.isin(numbers, sorted(held))
    held_out: Rows | None = None
    if spec.eval_data:
        other = table_of(
            encode(unpacked.model_copy(update={"data": spec.eval_data})), spec.eval_data
        )
        held_out = Rows(other, _alone(range(len(other))))
    elif held:
        held_out = Rows(table, _alone(np.flatnonzero(apart).tolist()))
    kept = np.flatnonzero(~apart).tolist()
    lengths = _lengths(table)[kept].tolist()
    packs = _alone(kept)
    if spec.encode.packing != "none":
        packs = [
            [kept[i] for i in pack] for pack in best_fit(lengths, spec.max_length or max(lengths))
        ]
    choices = tuple(said(spec, held, encoded.manifest))
    return Data(Rows(table, packs), held_out, encoded, len(kept), sum(lengths), held, choices)


def table_of(encoded: Encoded, files: Iterable[str]) -> Any:
    """The rows that were written. Raises DataError where there are none."""
    if not encoded.counts["packs"]:
        raise DataError(
            f"{', '.join(files)}: no example is left to train on; see"
            f" {encoded.folder}/dropped.jsonl"
        )
    return encoded.dataset()


def _lengths(table: Any) -> NDArray[np.int64]:
    """(rows,) in tokens"""
    chunks = table.data.table["input_ids"].chunks
    return np.concatenate([np.asarray(chunk.value_lengths(), dtype=np.int64) for chunk in chunks])


def _alone(places: Iterable[int]) -> list[list[int]]:
    return [[i] for i in places]


def said(spec: RunSpec, held: frozenset[int], manifest: Mapping[str, Any]) -> Iterator[Choice]:
    """What a user should know of the rows."""
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


def hold_out(numbers: Any, size: float | None) -> frozenset[int]:
    """Some rows, by a hash of their number: the same in every run on the same data."""
    rows = np.unique(numbers).tolist()
    if size is None:
        count = (
            min(MOST, max(FEWEST, round(HELD_OUT * len(rows)))) if len(rows) >= 10 * FEWEST else 0
        )
    else:
        count = round(size * len(rows)) if size < 1 else int(size)
        if not 0 <= count < len(rows):
            raise UsageError(
                f"training.val_size is {size:g}, and the data has {len(rows):,} rows: hold out"
                " fewer; 0 holds out none"
            )
    return frozenset(sorted(rows, key=_hash)[: min(count, len(rows) - 1)])


def with_copies(texts: Iterable[bytes], numbers: Any, held: frozenset[int]) -> frozenset[int]:
    """The rows that are held out, and those with the same text as one of them; none where no other row is left."""
    if not held:
        return held
    digests = [hashlib.blake2b(text, digest_size=8).digest() for text in texts]
    rows = numbers.tolist()
    theirs = {digest for digest, row in zip(digests, rows, strict=True) if row in held}
    found = held | {row for digest, row in zip(digests, rows, strict=True) if digest in theirs}
    return found if len(found) < len(set(rows)) else frozenset()


def texts_of(table: Any) -> Iterator[bytes]:
    """The ids of each row."""
    return (np.asarray(ids.values).tobytes() for ids in table.data.table["input_ids"])


def highest(rows: Rows) -> int:
    """The highest id of the table that rows are taken from."""
    column = rows.table.data.table["input_ids"]
    return max(int(np.asarray(chunk.flatten()).max()) for chunk in column.chunks if len(chunk))


def _hash(number: int) -> bytes:
    return hashlib.blake2b(str(number).encode(), digest_size=8).digest()
