"""Renderings: the training examples of the given rows, to be found again among the ids of a batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from truetune.data.conversation import Conversation
from truetune.encoding.batch import Batch
from truetune.encoding.encoder import Encoder
from truetune.encoding.stream import batch
from truetune.errors import TruetuneError
from truetune.render.probes import Probes
from truetune.render.rendering import Source
from truetune.spec.run import Learn

Ids = NDArray[np.int64]
FEW = 4
"""An example of fewer tokens is found only where it is a whole document."""


CHANGES: dict[str, dict[str, Any]] = {
    "as-served": {"history": "as-served"},
    "eos": {"append_eos": True},
    "completion": {"learn": Learn(what="completion")},
}
"""Settings of the renderer for rows that may have been rendered otherwise"""


@dataclass(frozen=True, eq=False)
class Example:
    """One training example of a given row, as the inference contract has it."""

    row: int
    ids: Ids
    source: NDArray[np.uint8]
    supervised: NDArray[np.bool_]
    plain: bool
    """Text without turns: what of it is to be learned is the trainer's choice"""


class Match(NamedTuple):
    """`ids[start:end]` are `example.ids[begin:begin + end - start]`."""

    start: int
    end: int
    example: Example
    begin: int


class Renderings:
    """Examples by row and by ids."""

    def __init__(self, probes: Probes, rows: Mapping[int, Conversation]) -> None:
        self.of_row: dict[int, list[Example]] = {}
        self._whole: dict[bytes, Example] = {}
        encoder = Encoder(probes.tokenizer.backend, only_reference=True)
        for kind, conversations in _variants(rows.values()):
            renderer = replace(probes, only_reference=True).renderer(
                **{"history": "single", **CHANGES.get(kind, {})}
            )
            made = batch(conversations, renderer, encoder)
            for part in (made, made.other):
                if part is not None:
                    self._add(part)

    def _add(self, made: Batch) -> None:
        for i, example in enumerate(made.examples):
            part = slice(int(made.offsets[i]), int(made.offsets[i + 1]))
            ids, row = made.ids[part].astype(np.int64), example.row.origin.row
            found = Example(
                row, ids, made.source[part], made.supervised[part], example.row.text is not None
            )
            if len(ids) and self._whole.setdefault(ids.tobytes(), found) is found:
                self.of_row.setdefault(row, []).append(found)

    def matches(self, ids: Ids, rows: Sequence[int], hint: int | None) -> list[Match]:
        """The examples in a range of ids, in order: whole, then cut ones at its ends."""
        whole = self._whole.get(ids.tobytes())
        if whole is not None:
            likely = self.of_row.get(hint, ()) if hint is not None else ()
            return [
                Match(
                    0, len(ids), next((e for e in likely if np.array_equal(e.ids, ids)), whole), 0
                )
            ]
        order = dict.fromkeys([*([hint] if hint is not None else []), *rows])
        near = [example for row in order for example in self.of_row.get(row, ())]
        found: list[Match] = []
        taken = np.zeros(len(ids), np.bool_)
        for example in sorted(near, key=lambda example: -len(example.ids)):
            for at in _places(ids, example.ids) if len(example.ids) >= FEW else ():
                end = at + len(example.ids)
                if not taken[at:end].any():
                    taken[at:end] = True
                    found.append(Match(at, end, example, 0))
        found.sort(key=lambda match: match.start)
        others = [
            example for row, many in self.of_row.items() if row not in order for example in many
        ]
        return _with_ends(ids, found, [*near, *others])


def _variants(rows: Iterable[Conversation]) -> Iterator[tuple[str, list[Conversation]]]:
    """The rows by how they may have been rendered: what trainers do first."""
    kinds: dict[str, list[Conversation]] = {}
    for row in rows:
        if not row.is_chat:
            kinds.setdefault("plain", []).append(row)
            kinds.setdefault("eos", []).append(row)
        elif row.prompt_messages is not None:
            kinds.setdefault("completion", []).append(row)
        else:
            kinds.setdefault("single", []).append(row)
            if sum(message.get("role") == "assistant" for message in row.messages) > 1:
                kinds.setdefault("as-served", []).append(row)
    order = ("single", "completion", "plain", "eos", "as-served")
    yield from ((kind, kinds[kind]) for kind in order if kind in kinds)


def _places(ids: Ids, wanted: Ids) -> Iterator[int]:
    """Where some ids stand among others, in order."""
    hay, needle, size = ids.tobytes(), wanted.tobytes(), ids.itemsize
    at = hay.find(needle) if len(wanted) else -1
    while at >= 0:
        if at % size == 0:
            yield at // size
        at = hay.find(needle, at + (len(needle) if at % size == 0 else 1))


def _with_ends(ids: Ids, found: list[Match], examples: list[Example]) -> list[Match]:
    """With the example that ends before the first match, and the one that begins behind the last."""
    if not found and (part := _middle(ids, examples)):
        return [part]
    head = found[0].start if found else len(ids)
    ended = _ended(ids[:head], examples)
    tail = found[-1].end if found else (ended.end if ended else 0)
    begun = _begun(ids[tail:], examples)
    return [
        *([ended] if ended else []),
        *found,
        *([begun._replace(start=begun.start + tail, end=len(ids))] if begun else []),
    ]


def _middle(ids: Ids, examples: list[Example]) -> Match | None:
    """All of a range from inside one example: cut at its end first."""
    parts = [
        Match(0, len(ids), e, at)
        for e in examples
        if len(e.ids) > len(ids)
        for at in _places(e.ids, ids)
    ]
    return min(parts, key=lambda match: match.begin, default=None)


def _ended(ids: Ids, examples: list[Example]) -> Match | None:
    """The longest end of an example with which a range begins."""
    found = None
    for example in examples:
        for at in _places(ids, example.ids[-min(FEW, len(ids)) :]) if len(ids) else ():
            count = at + min(FEW, len(ids), len(example.ids))
            if count > (found.end if found else 0) and np.array_equal(
                ids[:count], example.ids[-count:]
            ):
                found = Match(0, count, example, len(example.ids) - count)
    return found


def _begun(ids: Ids, examples: list[Example]) -> Match | None:
    """The longest beginning of an example with which a range ends."""
    found = None
    for example in examples:
        for at in _places(ids, example.ids[: min(FEW, len(ids))]) if len(ids) else ():
            if at < (found.start if found else len(ids)) and np.array_equal(
                ids[at:], example.ids[: len(ids) - at]
            ):
                found = Match(at, len(ids), example, 0)
    return found


def renderings(probes: Probes | None, rows: Mapping[int, Conversation]) -> Renderings | None:
    """None where there is no tokenizer, or it can't render these rows."""
    if probes is None:
        return None
    try:
        return Renderings(probes, rows)
    except TruetuneError:
        return None


def is_answer(source: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """(tokens,) -> (tokens,): content, reasoning and calls of the assistant."""
    return np.isin(source, (Source.ASSISTANT, Source.REASONING, Source.TOOL_CALL))
