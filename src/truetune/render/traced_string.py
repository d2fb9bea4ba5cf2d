"""Traced: a string that remembers where each of its characters came from, through what a template does to it.

A chat template is an arbitrary program. Its inputs are wrapped so that every string in them is a `Traced`
atom: one expression (`Node`) over one field of the conversation. What the template makes of an atom is an
atom again (`strip`, `split(...)[-1]`, the body of `tojson`), or a compound of atoms and literal text
(`+`, `~`, `join`, output). So each rendering comes out as a list of parts, literal text and atoms.

A `Trace` notes every question that the template asked of an atom (`in`, `==`, `startswith`, truth) with its
answer. Another row of the same shape that answers alike renders to the same parts: see `recipe`. What can't be
noted makes the trace opaque: the rendering and its provenance hold, but for this row alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, SupportsIndex

Path = tuple[str | int, ...]
"""("messages", 2, "content")"""
Node = tuple[Any, ...]
"""("leaf", path), or (operation, parent node, arguments)"""

UNKNOWN: Path = ("?",)
STRUCTURE_KEYS = frozenset(("role", "type"))
"""Keys whose strings steer the template; they count as shape and not as content."""
MAX_DEPTH = 64
"""Operations that one expression may nest. Published templates nest 5; Python hashes a nested tuple on the C stack,
which some 10,000 levels overflow."""


class Segment(NamedTuple):
    """A stretch of an atom: `length` characters of the field at `path`, from `offset` on.

    An offset of -1 is text made from somewhere in the field (an escape in JSON); a path of None is text that the
    template put in between (`replace`).
    """

    length: int
    path: Path | None
    offset: int


class Trace:
    """What one rendering asked of its inputs."""

    __slots__ = ("answers", "opaque")

    def __init__(self) -> None:
        self.answers: dict[tuple[Node, str, tuple[Any, ...]], Any] = {}
        self.opaque = False


class Traced(str):
    """A str with provenance. Every method gives what str's gives, character for character."""

    __slots__ = ("depth", "node", "parts", "segments", "trace")
    trace: Trace
    node: Node
    depth: int
    """How many operations the expression nests; 0 for a field and for a compound"""
    segments: tuple[Segment, ...]
    parts: tuple[str | Traced, ...] | None
    """None for an atom"""

    def __str__(self) -> str:
        return self

    @property
    def plain(self) -> str:
        """The characters alone."""
        return str.__str__(self)

    # questions

    def _ask(self, question: str, answer: Any, *args: Any) -> Any:
        if self.parts is None and not any(isinstance(a, Traced) for a in args):
            self.trace.answers[self.node, question, args] = answer
        elif self.parts is None or not _is_settled_by_literals(self, question, args):
            self.trace.opaque = True
        return answer

    def __eq__(self, other: object) -> bool:
        return (
            bool(self._ask("__eq__", str.__eq__(self, other), other))
            if isinstance(other, str)
            else False
        )

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        self.trace.opaque = True
        return str.__hash__(self)

    def __bool__(self) -> bool:
        if self.parts is not None:
            return any(not isinstance(p, Traced) for p in self.parts) or any(
                bool(p) for p in self.parts
            )
        return bool(self._ask("__bool__", str.__len__(self) > 0))

    def is_part_of(self, text: str) -> bool:
        """`self in text`, as a question."""
        return bool(self._ask("is_part_of", self.plain in text, text))

    def is_one_of(self, texts: tuple[str, ...]) -> bool:
        """`self in texts`, as a question."""
        return bool(self._ask("is_one_of", any(str.__eq__(self, text) for text in texts), texts))

    def __iter__(self) -> Iterator[str]:
        return (self[i] for i in range(len(self)))

    # strings made from this one

    def _atom(
        self, text: str, operation: str, args: tuple[Any, ...], segments: Iterable[Segment]
    ) -> Traced:
        if (
            self.parts is not None
            or self.depth >= MAX_DEPTH
            or any(isinstance(a, Traced) for a in args)
        ):
            self.trace.opaque = True
            return make_atom(text, self.trace, ("leaf", UNKNOWN), tuple(segments))
        return make_atom(
            text, self.trace, (operation, self.node, args), tuple(segments), self.depth + 1
        )

    def _slice(self, start: int, stop: int, operation: str, args: tuple[Any, ...]) -> Traced:
        return self._atom(
            self.plain[start:stop], operation, args, cut_segments(self.all_segments(), start, stop)
        )

    def all_segments(self) -> tuple[Segment, ...]:
        """In order, covering the string; also of a compound."""
        if self.parts is None:
            return self.segments
        return tuple(
            segment
            for part in self.parts
            for segment in (
                part.segments if isinstance(part, Traced) else (Segment(len(part), None, -1),)
            )
        )

    def _coarse(self, text: str, operation: str, args: tuple[Any, ...]) -> Traced:
        paths = {s.path for s in self.all_segments() if s.path is not None}
        path = paths.pop() if len(paths) == 1 else UNKNOWN
        return self._atom(text, operation, args, (Segment(len(text), path, -1),))

    def __getitem__(self, key: SupportsIndex | slice) -> str:
        if isinstance(key, slice):
            args = (key.start, key.stop, key.step)
            start, stop, step = key.indices(str.__len__(self))
            if step == 1:
                return self._slice(start, max(start, stop), "slice", args)
            return self._coarse(self.plain[key], "slice", args)
        if not isinstance(key, SupportsIndex):
            raise TypeError(f"string indices must be integers, not {type(key).__name__!r}")
        index = key.__index__()
        length = str.__len__(self)
        if not -length <= index < length:
            self.trace.opaque = True
            raise IndexError("string index out of range")
        start = index % length
        return self._slice(start, start + 1, "__getitem__", (index,))

    def _strip(self, operation: str, chars: str | None) -> str:
        if self.parts is not None and not isinstance(chars, Traced):
            return _strip_compound(self, operation, chars)
        text = self.plain
        start = len(text) - len(text.lstrip(chars)) if operation != "rstrip" else 0
        stop = max(len(text.rstrip(chars)), start) if operation != "lstrip" else len(text)
        return self._slice(start, stop, operation, (chars,))

    def strip(self, chars: str | None = None, /) -> str:
        return self._strip("strip", chars)

    def lstrip(self, chars: str | None = None, /) -> str:
        return self._strip("lstrip", chars)

    def rstrip(self, chars: str | None = None, /) -> str:
        return self._strip("rstrip", chars)

    def removeprefix(self, prefix: str, /) -> str:
        start = len(prefix) if self.plain.startswith(prefix) else 0
        return self._slice(start, len(self.plain), "removeprefix", (prefix,))

    def removesuffix(self, suffix: str, /) -> str:
        return self._slice(0, len(self.plain.removesuffix(suffix)), "removesuffix", (suffix,))

    def _items(
        self, pieces: Iterable[str], operation: str, args: tuple[Any, ...], gap: int = 0
    ) -> list[Traced]:
        """Atoms for pieces that stand in this string one after the other, at least `gap` characters apart."""
        text, end, found = self.plain, -gap, []
        for piece in pieces:
            start = text.index(piece, end + gap)
            end = start + len(piece)
            found.append((start, end))
        if (
            self.parts is not None
            or self.depth >= MAX_DEPTH
            or any(isinstance(a, Traced) for a in args)
        ):
            return [self._slice(start, stop, operation, args) for start, stop in found]
        whole = (operation, self.node, args)
        self.trace.answers[whole, "__len__", ()] = len(found)
        segments = self.all_segments()
        return [
            make_atom(
                text[a:b],
                self.trace,
                ("item", whole, (i,)),
                tuple(cut_segments(segments, a, b)),
                self.depth + 2,
            )
            for i, (a, b) in enumerate(found)
        ]

    def split(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list[str]:
        return [
            *self._items(
                self.plain.split(sep, maxsplit), "split", (sep, int(maxsplit)), len(sep or "")
            )
        ]

    def rsplit(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list[str]:
        return [
            *self._items(
                self.plain.rsplit(sep, maxsplit), "rsplit", (sep, int(maxsplit)), len(sep or "")
            )
        ]

    def splitlines(self, keepends: bool = False) -> list[str]:
        return [*self._items(self.plain.splitlines(keepends), "splitlines", (keepends,))]

    def partition(self, sep: str, /) -> tuple[str, str, str]:
        head, middle, tail = self._items(self.plain.partition(sep), "partition", (sep,))
        return head, middle, tail

    def rpartition(self, sep: str, /) -> tuple[str, str, str]:
        head, middle, tail = self._items(self.plain.rpartition(sep), "rpartition", (sep,))
        return head, middle, tail

    def replace(self, old: str, new: str, count: SupportsIndex = -1, /) -> str:
        text, limit = self.plain, int(count)
        args = (old, new, limit)
        result = text.replace(old, new, limit)
        if not old or isinstance(new, Traced):
            return self._coarse(result, "replace", args)
        segments, mine, end = [], self.all_segments(), 0
        while limit and (start := text.find(old, end)) >= 0:
            segments += [*cut_segments(mine, end, start), Segment(len(new), None, -1)]
            end, limit = start + len(old), limit - 1
        return self._atom(result, "replace", args, [*segments, *cut_segments(mine, end, len(text))])

    def join(self, iterable: Iterable[str], /) -> str:
        return join(self, iterable)

    def __add__(self, other: str) -> str:
        return concat((self, other)) if isinstance(other, str) else str.__add__(self, other)

    def __radd__(self, other: str) -> str:
        return concat((other, self)) if isinstance(other, str) else NotImplemented

    def __mul__(self, count: SupportsIndex) -> str:
        return concat([self] * count.__index__())

    __rmul__ = __mul__

    def __mod__(self, value: Any) -> str:
        return unknown_text(self.plain % value, self.trace)

    def __rmod__(self, template: str) -> str:
        return unknown_text(template % (self.plain,), self.trace)


def _make_question(name: str) -> Callable[..., Any]:
    method = getattr(str, name)

    def ask(self: Traced, *args: Any) -> Any:
        try:
            answer = method(self, *args)
        except Exception:
            # `index` of what is not there: that it raised is an answer which no guard can hold.
            self.trace.opaque = True
            raise
        return self._ask(name, answer, *args)

    ask.__name__ = name
    return ask


def _make_mapping(name: str) -> Callable[..., str]:
    method = getattr(str, name)

    def change(self: Traced, *args: Any) -> str:
        text: str = method(self, *args)
        if len(text) == len(self.plain) and name not in ("center", "ljust", "rjust", "zfill"):
            return self._atom(text, name, args, self.all_segments())
        return self._coarse(text, name, args)

    change.__name__ = name
    return change


QUESTIONS = (
    "__contains__",
    "__len__",
    "__lt__",
    "__le__",
    "__gt__",
    "__ge__",
    "startswith",
    "endswith",
    "find",
    "rfind",
    "index",
    "rindex",
    "count",
    "isalnum",
    "isalpha",
    "isascii",
    "isdecimal",
    "isdigit",
    "isidentifier",
    "islower",
    "isnumeric",
    "isprintable",
    "isspace",
    "istitle",
    "isupper",
)
MAPPINGS = (
    "upper",
    "lower",
    "title",
    "capitalize",
    "swapcase",
    "casefold",
    "center",
    "ljust",
    "rjust",
    "zfill",
    "expandtabs",
)
for _name in QUESTIONS:
    setattr(Traced, _name, _make_question(_name))
for _name in MAPPINGS:
    setattr(Traced, _name, _make_mapping(_name))


def _make_untraced(name: str) -> Callable[..., Any]:
    method = getattr(str, name)

    def call(self: Traced, *args: Any, **kwargs: Any) -> Any:
        self.trace.opaque = True
        result = method(self, *args, **kwargs)
        return unknown_text(result, self.trace) if isinstance(result, str) else result

    call.__name__ = name
    return call


for _name in dir(str):
    # `encode`, `translate`, and whatever a later Python adds: str's own would copy a field without its provenance.
    if not _name.startswith("_") and _name not in vars(Traced) and _name != "maketrans":
        setattr(Traced, _name, _make_untraced(_name))
# What a template's errors call the type of a field, as they do elsewhere.
Traced.__name__, Traced.__qualname__, Traced.__module__ = "str", "str", "builtins"


def make_atom(
    text: str, trace: Trace, node: Node, segments: tuple[Segment, ...], depth: int = 0
) -> Traced:
    """A string made by one expression over one field."""
    made = Traced(text)
    made.trace, made.node, made.segments, made.parts, made.depth = (
        trace,
        node,
        segments,
        None,
        depth,
    )
    return made


def make_leaf(text: str, trace: Trace, path: Path) -> Traced:
    """The string that stands at `path` in a template's input."""
    return make_atom(text, trace, ("leaf", path), (Segment(len(text), path, 0),))


def wrap_texts(value: Any, path: Path, trace: Trace) -> Any:
    """The same value with an atom of `trace` for each text in it, but for the texts that are structure."""
    if isinstance(value, str):
        return make_leaf(value, trace, path)
    if isinstance(value, dict):
        return {
            key: (
                item
                if key in STRUCTURE_KEYS and isinstance(item, str)
                else wrap_texts(item, (*path, key), trace)
            )
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [wrap_texts(item, (*path, index), trace) for index, item in enumerate(value)]
    return value


def unknown_text(text: str, trace: Trace) -> Traced:
    """Text that was made from fields in a way that can't be followed."""
    trace.opaque = True
    return make_atom(text, trace, ("leaf", UNKNOWN), (Segment(len(text), UNKNOWN, -1),))


def make_compound(parts: tuple[str | Traced, ...], trace: Trace) -> Traced:
    """Atoms and literal text one after the other."""
    made = Traced("".join(parts))
    made.trace, made.parts, made.node, made.segments, made.depth = trace, parts, (), (), 0
    return made


def concat(strings: Iterable[str]) -> str:
    """`"".join`, with provenance."""
    parts: list[str | Traced] = []
    trace = None
    for string in strings:
        if not isinstance(string, Traced):
            literal = str.__str__(string)  # of Markup too, which would escape what it is added to
            if parts and not isinstance(parts[-1], Traced):
                parts[-1] += literal
            elif literal:
                parts.append(literal)
            continue
        trace = string.trace
        for part in (string,) if string.parts is None else string.parts:
            if parts and not isinstance(part, Traced) and not isinstance(parts[-1], Traced):
                parts[-1] += part
            else:
                parts.append(part)
    if trace is None:
        return "".join(parts)
    return parts[0] if len(parts) == 1 else make_compound(tuple(parts), trace)


def join(separator: str, strings: Iterable[str]) -> str:
    """`separator.join(strings)`, with provenance."""
    items = list(strings)
    return concat(
        item for i, string in enumerate(items) for item in ((separator, string) if i else (string,))
    )


def parts(text: str) -> tuple[str | Traced, ...]:
    """The literal stretches and the atoms that a string is made of, in order."""
    if not isinstance(text, Traced):
        return (text,) if text else ()
    return (text,) if text.parts is None else text.parts


def cut_segments(segments: Iterable[Segment], start: int, stop: int) -> list[Segment]:
    """What stands between two characters."""
    found, at = [], 0
    for length, path, offset in segments:
        low, high = max(start, at), min(stop, at + length)
        if low < high:
            found.append(Segment(high - low, path, offset + low - at if offset >= 0 else -1))
        at += length
    return found


def _strip_compound(string: Traced, operation: str, chars: str | None) -> str:
    """Strip the parts at the ends, each as far as nothing is left of it."""
    assert string.parts is not None
    kept = list(string.parts)
    for end, method in ((0, "lstrip"), (-1, "rstrip")):
        if operation in ("strip", method):
            while kept:
                kept[end] = getattr(kept[end], method)(chars)
                if kept[end]:
                    break
                del kept[end]
    return concat(kept)


def _is_settled_by_literals(string: Traced, question: str, args: tuple[Any, ...]) -> bool:
    """Is the answer the same whatever the fields of a compound hold, by its literal text alone?"""
    assert string.parts is not None
    literal = [part for part in string.parts if not isinstance(part, Traced)]
    match question, args:
        case "__contains__", (str(wanted),):
            return any(wanted in part for part in literal)
        case "startswith", (str(wanted),):
            return not isinstance(string.parts[0], Traced) and len(string.parts[0]) >= len(wanted)
        case "endswith", (str(wanted),):
            return not isinstance(string.parts[-1], Traced) and len(string.parts[-1]) >= len(wanted)
    return False
