"""Placing: where each token of a recorded batch came from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from truetune.auditing.audit import Field, Sample
from truetune.auditing.documents import numbered
from truetune.auditing.lines import Line, lines
from truetune.auditing.padding import Pads
from truetune.auditing.renderings import Match, Renderings, is_answer, renderings
from truetune.auditing.rows import Rows
from truetune.auditing.search import Normalize, Spot, Text
from truetune.auditing.turns import (
    Range,
    after_markers,
    by_fields,
    by_markers,
    mark_stops,
    marker_of,
)
from truetune.encoding.token_bytes import SPACE, TokenBytes
from truetune.probe.run_record import Record
from truetune.render.probes import Probes
from truetune.render.rendering import IGNORED, Source

EXTRA = 2
"""Tokens behind a rendering that are taken for its own, such as an EOS more"""


def samples(record: Record, probes: Probes | None, stops: frozenset[int]) -> Iterator[Sample]:
    """Every line of every batch of a record, with its tokens placed; none where the labels are of another text."""
    if not record.facts["model"]["config"].get("is_encoder_decoder"):
        yield from Placer(record, probes, stops).samples()


@dataclass
class Placed:
    """A line while its tokens are being placed: (tokens,) each."""

    source: NDArray[np.uint8]
    owner: NDArray[np.int32]
    expected: NDArray[np.bool_]
    known: NDArray[np.bool_]
    """Is it known what is expected?"""
    starts: NDArray[np.bool_]
    fields: list[Field] = field(default_factory=list)
    cut: list[int] = field(default_factory=list)
    how: Counter[str] = field(default_factory=Counter)


class Part(NamedTuple):
    """A range of a line, of one document as far as the batch tells."""

    start: int
    end: int
    rows: Sequence[int]
    hint: int | None


class Placer:
    """Places the lines of one record."""

    def __init__(self, record: Record, probes: Probes | None, stops: frozenset[int]) -> None:
        facts = record.facts
        special = facts["tokenizer"] or {}
        bos = special.get("bos")
        self.rank, self.stops, self.bos = int(facts["rank"]), stops, bos
        self.lines = list(lines(record, Pads(special.get("pad"), bos, stops)))
        self.rows = Rows(
            dict(zip(facts["data"]["numbers"], record.rows, strict=True)), _normalizer(probes)
        )
        self._aligned = _is_aligned(facts["data"])
        self._marker = marker_of(probes)
        self._control = probes.tokenizer.control if probes else frozenset()
        self._pieces = _spelled(self.lines, probes)
        self._near = [
            self.rows.near(self._spell(line.ids[~line.padding]), self._hint(line))
            for line in self.lines
        ]
        wanted = {row for near in self._near for row in near}
        self._known: Renderings | None = renderings(
            probes,
            {
                row: talk
                for row, talk in self.rows.talks.items()
                if talk is not None and row in wanted
            },
        )

    def samples(self) -> Iterator[Sample]:
        """Its lines, in order."""
        for line, near in zip(self.lines, self._near, strict=True):
            yield self._sample(line, near)

    def _sample(self, line: Line, near: list[int]) -> Sample:
        size = len(line.ids)
        made = Placed(
            np.zeros(size, np.uint8),
            np.full(size, -1, np.int32),
            np.zeros(size, np.bool_),
            np.zeros(size, np.bool_),
            line.starts.copy(),
        )
        for start, end in _ranges(line.starts, ~line.padding):
            self._place(line, Part(start, end, near, self._hint(line)), made)
        supervised = line.labels != IGNORED if line.labels is not None else np.zeros(size, np.bool_)
        expected = (
            np.where(made.known, made.expected, supervised & ~line.padding)
            if made.known.any()
            else None
        )
        return Sample(
            rank=self.rank,
            batch=line.batch,
            line=line.line,
            ids=line.ids,
            labels=line.labels,
            attended=line.attended,
            positions=line.positions,
            documents=numbered(made.starts, ~line.padding),
            padding=line.padding,
            source=made.source,
            field=made.owner,
            fields=tuple(made.fields),
            expected=expected,
            pieces=tuple(
                self._pieces[i].decode("utf-8", "surrogateescape") for i in line.ids.tolist()
            ),
            side=line.side,
            placed_by=max(made.how, key=lambda how: made.how[how], default=""),
            separated_by=line.separated_by,
            cut=tuple(made.cut),
        )

    def _hint(self, line: Line) -> int | None:
        """The given row that a line is likely to be."""
        return line.row if self._aligned and line.row in self.rows.fields else None

    def _place(self, line: Line, part: Part, made: Placed) -> None:
        ids = line.ids[part.start : part.end]
        matches = self._known.matches(ids, part.rows, part.hint) if self._known else []
        at, begun = part.start, False
        for match in matches:
            start, end = part.start + match.start, part.start + match.end
            if not self._is_extra(line, at, start, made, match, begun=begun):
                self._unrendered(line, Part(at, start, part.rows, None), made, begun=begun)
                begun = True
            self._rendered(line, start, match, made)
            made.starts[start] |= begun
            at, begun = end, True
        if not (matches and self._is_extra(line, at, part.end, made, matches[-1], begun=begun)):
            self._unrendered(line, Part(at, part.end, part.rows, part.hint), made, begun=begun)

    def _is_extra(
        self, line: Line, start: int, end: int, made: Placed, match: Match, *, begun: bool
    ) -> bool:
        """Is this nothing, or a BOS or two more tokens than the rendering beside it has? They are not expected."""
        extra = line.ids[start:end]
        if start < end and (
            match.example.plain
            or not ((begun and end - start <= EXTRA) or (extra == self.bos).all())
        ):
            return False
        made.source[start:end][extra == self.bos] = Source.BOS
        made.known[start:end] = True
        return True

    def _rendered(self, line: Line, start: int, match: Match, made: Placed) -> None:
        example, end = match.example, start + match.end - match.start
        of = slice(match.begin, match.begin + end - start)
        made.source[start:end] = example.source[of]
        made.how["rendering"] += end - start
        if example.plain:
            self._plain(line, start, end, made)
        else:
            made.expected[start:end], made.known[start:end] = example.supervised[of], True
        text = self._text(line, start, end)
        for spot in self.rows.within(
            example.row, text, 0, len(text.text), cut=len(example.ids) > end - start
        ):
            inside = text.inside(spot) + start
            self._give(inside[made.source[inside] != Source.TEMPLATE], example.row, spot, made)

    def _plain(self, line: Line, start: int, end: int, made: Placed) -> None:
        """Plain text, in which the user may have written the template's markers."""
        part = self._range(line, start, end, made)
        marks = after_markers(part, self._marker)
        if marks:
            made.expected[start:end], made.known[start:end] = (
                by_markers(part, marks, self.stops),
                True,
            )
        else:
            mark_stops(part, self.stops)

    def _give(self, tokens: NDArray[np.int64], row: int, spot: Spot, made: Placed) -> None:
        wanted = self.rows.fields[row][spot.field]
        if not len(tokens):
            return
        if wanted not in made.fields:
            made.fields.append(wanted)
        number = made.fields.index(wanted)
        made.owner[tokens] = number
        if spot.cut and number not in made.cut:
            made.cut.append(number)

    def _unrendered(self, line: Line, part: Part, made: Placed, *, begun: bool = False) -> None:
        """A range that is no rendering of a row: by the texts of rows, else by the template's markers."""
        start, end = part.start, part.end
        if start == end:
            return
        text = self._text(line, start, end)
        found = self.rows.search(
            text, part.rows, part.hint, ended=int(line.ids[end - 1]) in self.stops
        )
        for number, (row, mine) in enumerate(found):
            for spot in mine:
                inside = text.inside(spot) + start
                made.source[inside] = spot.source
                self._give(inside, row, spot, made)
            if number or begun:
                made.starts[start + self._begin(line, text, mine, start)] = True
        if not found:
            plain = ~np.isin(line.ids[start:end], list(self._control | self.stops))
            made.source[start:end][plain] = Source.TEXT
        self._bos(line, start, end, made)
        self._expect(line, start, end, made, bool(found))

    def _bos(self, line: Line, start: int, end: int, made: Placed) -> None:
        while start < end and self.bos is not None and line.ids[start] == self.bos:
            made.source[start] = Source.BOS
            start += 1

    def _expect(self, line: Line, start: int, end: int, made: Placed, found: bool) -> None:
        part = self._range(line, start, end, made)
        marks = after_markers(part, self._marker)
        if is_answer(part.source).any():
            mark_stops(part, self.stops)
            paths = [made.fields[i].path if i >= 0 else "" for i in made.owner[start:end].tolist()]
            prompt = np.array([path.startswith("prompt") for path in paths], np.bool_)
            made.expected[start:end], made.known[start:end] = by_fields(part, marks, prompt), True
            made.how["fields"] += end - start
        elif marks:
            made.expected[start:end], made.known[start:end] = (
                by_markers(part, marks, self.stops),
                True,
            )
            made.how["fields" if found else "markers"] += end - start
        else:
            mark_stops(part, self.stops)
            made.how["fields" if found else ""] += end - start

    def _begin(self, line: Line, text: Text, mine: list[Spot], start: int) -> int:
        """The token with which a row's text begins: behind the stop token before its first field."""
        first = int(text.inside(min(mine, key=lambda spot: spot.start))[0])
        before = np.flatnonzero(np.isin(line.ids[start : start + first], list(self.stops)))
        return int(before[-1]) + 1 if len(before) else first

    def _range(self, line: Line, start: int, end: int, made: Placed) -> Range:
        ids = line.ids[start:end]
        return Range(ids, tuple(self._pieces[i] for i in ids.tolist()), made.source[start:end])

    def _spell(self, ids: NDArray[np.int64]) -> bytes:
        return b"".join(self._pieces[i] for i in ids.tolist())

    def _text(self, line: Line, start: int, end: int) -> Text:
        pieces = [self._pieces[i] for i in line.ids[start:end].tolist()]
        begins = np.cumsum([0, *map(len, pieces)])
        return Text(b"".join(pieces), begins[:-1].tolist())


def _ranges(starts: NDArray[np.bool_], text: NDArray[np.bool_]) -> Iterator[tuple[int, int]]:
    """The documents of a line as ranges."""
    places = np.flatnonzero(text)
    if not len(places):
        return
    begins = [int(i) for i in places if starts[i]] or [int(places[0])]
    yield from zip(begins, [*begins[1:], int(places[-1]) + 1], strict=True)


def _spelled(found: list[Line], probes: Probes | None) -> dict[int, bytes]:
    """What each id that occurs spells; an id beyond the vocabulary nothing."""
    ids = {int(i) for line in found for i in np.unique(line.ids)}
    if probes is None:
        return dict.fromkeys(ids, b"")
    vocabulary = TokenBytes(probes.tokenizer.backend)
    return {i: vocabulary.spell(i) if i >= 0 else b"" for i in ids}


def _is_aligned(data: dict[str, dict[str, int | None] | None]) -> bool:
    """Have the given rows and the prepared ones the same number? Then they are likely to have the same order."""
    given, prepared = data.get("given"), data.get("prepared")
    return bool(
        given and prepared and given["rows"] is not None and given["rows"] == prepared["rows"]
    )


def _normalizer(probes: Probes | None) -> Normalize:
    """What the tokenizer makes of a text before it cuts it."""
    normalizer = probes.tokenizer.backend.normalizer if probes else None
    if normalizer is None:
        return str
    return lambda text: normalizer.normalize_str(text).replace(SPACE, " ")
