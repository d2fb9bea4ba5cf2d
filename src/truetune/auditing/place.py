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
from truetune.auditing.fields import conversation_of, fields_of
from truetune.auditing.lines import Line, lines
from truetune.auditing.padding import Pads
from truetune.auditing.renderings import Renderings, is_answer, renderings
from truetune.auditing.search import WINDOW, Normalize, Spot, Text, spots, windows
from truetune.auditing.turns import Range, after_markers, by_fields, by_markers, mark_stops, marker_of
from truetune.encoding.vocabulary import SPACE, Vocabulary
from truetune.probe.record import Record
from truetune.render.probes import Probes
from truetune.render.rendering import Source

FEW = 256
"""So many rows are all looked for where none is recognised"""


def samples(record: Record, probes: Probes | None, stops: frozenset[int]) -> Iterator[Sample]:
    """Every line of every batch of a record, with its tokens placed."""
    placer = Placer(record, probes, stops)
    for line in placer.lines:
        yield placer.sample(line)


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
        numbers = facts["data"]["numbers"]
        rows = dict(zip(numbers, record.rows, strict=True))
        talks = {number: conversation_of(row, number) for number, row in rows.items()}
        self.fields = {number: fields_of(row, number, talks[number]) for number, row in rows.items()}
        self._windows = {number: windows(found) for number, found in self.fields.items()}
        self._aligned = _is_aligned(facts["data"])
        self._marker = marker_of(probes)
        self._normalize = _normalizer(probes)
        self._control = probes.tokenizer.control if probes else frozenset()
        self._pieces = _spelled(self.lines, probes)
        self._near = {id(line): self._rows_of(line) for line in self.lines}
        wanted = {row for near in self._near.values() for row in near}
        self._known: Renderings | None = renderings(
            probes, {row: talk for row, talk in talks.items() if talk is not None and row in wanted}
        )

    def sample(self, line: Line) -> Sample:
        """A line with its tokens placed."""
        size = len(line.ids)
        made = Placed(
            np.zeros(size, np.uint8), np.full(size, -1, np.int32), np.zeros(size, np.bool_), np.zeros(size, np.bool_),
            line.starts.copy(),
        )  # fmt: skip
        rows = self._near[id(line)]
        hint = self._hint(line)
        for start, end in _ranges(line.starts, ~line.padding):
            self._place(line, Part(start, end, rows, hint), made)
        supervised = line.labels != -100 if line.labels is not None else np.zeros(size, np.bool_)
        expected = np.where(made.known, made.expected, supervised & ~line.padding) if made.known.any() else None
        return Sample(
            rank=self.rank, batch=line.batch, line=line.line, ids=line.ids, labels=line.labels, attended=line.attended,
            positions=line.positions, documents=numbered(made.starts, ~line.padding), padding=line.padding,
            source=made.source, field=made.owner, fields=tuple(made.fields), expected=expected,
            pieces=tuple(self._pieces[i].decode("utf-8", "surrogateescape") for i in line.ids.tolist()),
            side=line.side, placed_by=max(made.how, key=lambda how: made.how[how], default=""),
            separated_by=line.separated_by, cut=tuple(made.cut),
        )  # fmt: skip

    def _rows_of(self, line: Line) -> list[int]:
        """The rows of which a window stands in a line; those of short texts may stand anywhere."""
        text = b"".join(self._pieces[i] for i in line.ids[~line.padding].tolist())
        near = [row for row, found in self._windows.items()
                if not found or row == self._hint(line) or any(window in text for window in found)]  # fmt: skip
        return near or (list(self._windows) if len(self._windows) <= FEW else [])

    def _hint(self, line: Line) -> int | None:
        """The given row that a line is likely to be."""
        return line.row if self._aligned and line.row in self.fields else None

    def _place(self, line: Line, part: Part, made: Placed) -> None:
        ids = line.ids[part.start : part.end]
        matches = self._known.matches(ids, part.rows, part.hint) if self._known else []
        at, begun = part.start, False
        for match in matches:
            start, end = part.start + match.start, part.start + match.end
            self._unrendered(line, Part(at, start, part.rows, None), made)
            of = slice(match.begin, match.begin + match.end - match.start)
            example = match.example
            made.source[start:end] = example.source[of]
            if not example.plain:
                made.expected[start:end], made.known[start:end] = example.supervised[of], True
            else:
                self._plain(line, start, end, made)
            made.how["rendering"] += end - start
            made.starts[start] |= begun
            self._own(line, start, end, example.row, made, is_part=len(example.ids) > end - start)
            at, begun = end, True
        self._unrendered(line, Part(at, part.end, part.rows, part.hint), made, begun=begun)

    def _plain(self, line: Line, start: int, end: int, made: Placed) -> None:
        """Plain text, in which the user may have written the template's markers."""
        part = self._range(line, start, end, made)
        marks = after_markers(part, self._marker)
        if marks:
            made.expected[start:end], made.known[start:end] = by_markers(part, marks, self.stops), True
        else:
            mark_stops(part, self.stops)

    def _own(self, line: Line, start: int, end: int, row: int, made: Placed, *, is_part: bool) -> None:
        """Which field of its row each token of a rendering is from."""
        text = self._text(line, start, end)
        found = spots(self.fields[row], text, 0, len(text.text), self._normalize, cut=is_part)
        for spot in found:
            inside = _inside(text, spot) + start
            self._give(inside[made.source[inside] != Source.TEMPLATE], row, spot, made)

    def _give(self, tokens: NDArray[np.int64], row: int, spot: Spot, made: Placed) -> None:
        wanted = self.fields[row][spot.field]
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
        found = list(self._search(line, part, text)) if (line.ids[start:end] != line.ids[start]).any() else []
        if not found and (begun or start > 0) and end - start <= 2:
            return
        for number, (row, mine) in enumerate(found):
            for spot in mine:
                inside = _inside(text, spot) + start
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
            made.expected[start:end], made.known[start:end] = by_markers(part, marks, self.stops), True
            made.how["fields" if found else "markers"] += end - start
        else:
            mark_stops(part, self.stops)
            made.how["fields" if found else ""] += end - start

    def _search(self, line: Line, part: Part, text: Text) -> Iterator[tuple[int, list[Spot]]]:
        """Rows and their spots in a range, by place: the row of most text first."""
        order = self._by_text(part, text)
        anchors: list[tuple[int, int, int]] = []
        for row in order:
            longest = next((spot for spot in self._anchors(row, text)), None)
            while longest is not None:
                anchors.append((longest[0], longest[1], row))
                text.take(*longest)
                longest = next((spot for spot in self._anchors(row, text)), None)
        if not anchors:
            for row in order[:1]:
                mine = self._spots(row, text, 0, len(text.text), line, part)
                if mine:
                    yield row, mine
            return
        anchors.sort()
        for start, end, _ in anchors:
            text.taken[start:end] = bytes(end - start)
        done = 0
        for i, (_, end, row) in enumerate(anchors):
            high = anchors[i + 1][0] if i + 1 < len(anchors) else len(text.text)
            mine = self._spots(row, text, done, high, line, part)
            done = max([end, *(spot.end for spot in mine)])
            if mine:
                yield row, mine

    def _by_text(self, part: Part, text: Text) -> list[int]:
        """The rows of which texts stand in a range, those with most of it first; of equals the row that is expected."""
        found = {}
        for row in part.rows:
            sizes = [len(wanted) for known in self.fields[row]
                     if (wanted := known.text.strip().encode("utf-8", "replace")) in text.text]  # fmt: skip
            found[row] = sum(sizes) or sum(window in text.text for window in self._windows[row])
        return sorted((row for row, size in found.items() if size), key=lambda row: (-found[row], row != part.hint))

    def _anchors(self, row: int, text: Text) -> Iterator[tuple[int, int]]:
        """Where the longest text of a row stands in the open, if it is long enough to tell the row."""
        for wanted in sorted((known.text.strip() for known in self.fields[row]), key=len, reverse=True):
            spelled = wanted.encode("utf-8", "replace")
            if len(spelled) < WINDOW:
                return
            if spelled in text.text:
                yield from ((at, at + len(spelled)) for at in text.found(spelled, 0, len(text.text))[:1])
                return

    def _spots(self, row: int, text: Text, low: int, high: int, line: Line, part: Part) -> list[Spot]:
        ended = line.ids[part.end - 1] in self.stops
        return spots(self.fields[row], text, low, high, self._normalize, cut=high == len(text.text) and not ended)

    def _begin(self, line: Line, text: Text, mine: list[Spot], start: int) -> int:
        """The token with which a row's text begins: behind the stop token before its first field."""
        ids = line.ids[start:]
        first = int(_inside(text, min(mine, key=lambda spot: spot.start))[0])
        before = [i for i in range(first) if ids[i] in self.stops]
        return before[-1] + 1 if before else first

    def _range(self, line: Line, start: int, end: int, made: Placed) -> Range:
        ids = line.ids[start:end]
        return Range(ids, tuple(self._pieces[i] for i in ids.tolist()), made.source[start:end])

    def _text(self, line: Line, start: int, end: int) -> Text:
        pieces = [self._pieces[i] for i in line.ids[start:end].tolist()]
        begins = np.cumsum([0, *map(len, pieces)])
        return Text(b"".join(pieces), begins[:-1].tolist())


def _inside(text: Text, spot: Spot) -> NDArray[np.int64]:
    """The tokens of a spot; the first may begin with the space before it."""
    begins = text.order
    first = int(np.searchsorted(begins, spot.start, side="left"))
    at = int(begins[first]) if first < len(begins) else len(text.text)
    if at > spot.start or first == len(begins):
        before = int(begins[first - 1])
        if text.text[before : spot.start].isspace():
            first -= 1
    return np.arange(first, int(np.searchsorted(begins, spot.end, side="left")))


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
    vocabulary = Vocabulary(probes.tokenizer.backend)
    return {i: vocabulary.spell(i) if i >= 0 else b"" for i in ids}


def _is_aligned(data: dict[str, dict[str, int | None] | None]) -> bool:
    """Have the given rows and the prepared ones the same number? Then they are likely to have the same order."""
    given, prepared = data.get("given"), data.get("prepared")
    return bool(given and prepared and given["rows"] is not None and given["rows"] == prepared["rows"])


def _normalizer(probes: Probes | None) -> Normalize:
    """What the tokenizer makes of a text before it cuts it."""
    normalizer = probes.tokenizer.backend.normalizer if probes else None
    if normalizer is None:
        return str
    return lambda text: normalizer.normalize_str(text).replace(SPACE, " ")
