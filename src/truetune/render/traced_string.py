"""Traced: a string that remembers where each of its characters came from, through what a template does to it.

A chat template is an arbitrary program. Its inputs are wrapped so that every string in them is a `Traced`
atom: one expression (`Node`) over one field of the conversation. What the template makes of an atom is an
atom again (`strip`, `split(...)[-1]`, the body of `tojson`), or a compound of atoms and literal text
(`+`, `~`, `join`, output). So each rendering comes out as a list of parts, literal text and atoms.

A `Trace` notes every question that the template asked of an atom (`in`, `==`, `startswith`, truth) with its answer.
Another row of the same shape that answers alike renders to the same parts: see `reusable_render_recipe`.

Recipe and provenance are lost apart from each other, in four degrees:

    offset -1                 a segment names its field, and not which characters of it these are (an escape in JSON)
    Trace.opaque              what was asked can't be noted: no recipe; text and segments hold, for this row alone
    UNKNOWN                   the path of a text that may come from any field; always with an opaque trace
    lost_provenance           of `TracedEnvironment`: fields may stand in the output as if they were the template's, so
                              that the whole rendering becomes one UNKNOWN text

An example. `{{ '<|user|>' ~ message.content | trim ~ '<|end|>' }}` over the content `" hi "` gives three parts:

    "<|user|>"                                                     literal text of the template
    "hi"    node ("strip", ("leaf", ("messages", 0, "content")), (None,))
            segments (Segment(2, ("messages", 0, "content"), 1),)  characters 1 and 2 of the field
    "<|end|>"                                                      literal text

The *node* says how to make the same text from another row (for recipes); the *segments* say which characters of
which field these are (for provenance). They are kept apart, because one expression (`replace`) may hold characters of
the field and of the template side by side.

The trade-off: a `str` subclass makes a rendering several times as slow (`prefix_renderings.MAX_RENDERED_TRACED`), but
it needs no change to any template and no list of known templates. Where a method is not understood it still gives the
right characters, and says "opaque" of where they came from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, SupportsIndex

Path = tuple[str | int, ...]
"""("messages", 2, "content")"""
Node = tuple[Any, ...]
"""An expression over one field, which a recipe evaluates for another row. One of:

    ("leaf", path)                                       the field itself
    (operation, parent, arguments)                       a text, made from the parent's by one operation
    ("item", (operation, parent, arguments), (number,))  a piece of a list: the node inside is a `split` or `partition`

`reusable_render_recipe.OPERATIONS` has a function for each operation. Plain tuples, for they are keys of
`Trace.answers`, and are compared and written as JSON by the thousand."""

UNKNOWN: Path = ("?",)
"""The path of text that nobody can say the field of"""
STRUCTURE_KEYS = frozenset(("role", "type"))
"""Keys whose strings steer the template; they count as shape and not as content."""
MAX_DEPTH = 64
"""Operations that one expression may nest. Published templates nest 5; Python hashes a nested tuple on the C stack,
which some 10,000 levels overflow. 64 is chosen between the two, nearer to the first: a template beyond it (a loop that
strips its own result) loses the recipe of its rows, and no text."""


class Segment(NamedTuple):
    """A stretch of an atom: `length` characters of the field at `path`, from `offset` on.

    An offset of -1 is text made from somewhere in the field (an escape in JSON); a path of None is text that the
    template put in between (`replace`).

    Attributes:
        length: how many characters of the atom the stretch covers.
        path: the field, as keys from the template's variables on; None for text of the template.
        offset: the first of these characters in the field; -1 where only the field is known.
    """

    length: int
    path: Path | None
    offset: int


class Trace:
    """What one rendering asked of its inputs.

    Attributes:
        answers: (node, question, arguments) -> answer. A recipe asks the same of another row, and holds for it only
            where every answer is equal.
        opaque: True once anything was done with a field that `answers` can't express. The text is right all the same;
            no recipe may be made of it.
    """

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

    # `str(x)`, Jinja's `string` filter and f-strings all end here; str's own would return a plain copy, and the field
    # would reach the output as literal text of the template.
    def __str__(self) -> str:
        return self

    @property
    def plain(self) -> str:
        """The characters alone."""
        return str.__str__(self)

    # questions

    def _note_question(self, question: str, answer: Any, *args: Any) -> Any:
        """Note in the trace that `question` was asked with `args`, and return its answer.

        Three cases: an atom compared with constants is a question that a recipe can ask again; a compound whose answer
        its literal text settles needs no question, for all rows answer alike; anything else (field against field, a
        compound whose fields matter) can't be asked again, so the trace becomes opaque.
        """
        is_atom = self.parts is None
        if is_atom and not any(isinstance(argument, Traced) for argument in args):
            self.trace.answers[self.node, question, args] = answer
        elif is_atom or not _is_settled_by_literals(self, question, args):
            self.trace.opaque = True
        return answer

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, str):
            # A text never equals what is no text, whatever a row holds: nothing to ask again.
            return False
        return bool(self._note_question("__eq__", str.__eq__(self, other), other))

    def __ne__(self, other: object) -> bool:
        return not self == other

    # A hash means that the field becomes a key (`tools_by_name[call.name]`). Which entry that finds depends on all of
    # its characters, and the dictionary would ask with plain comparisons that no method of this class sees.
    def __hash__(self) -> int:
        self.trace.opaque = True
        return str.__hash__(self)

    def __bool__(self) -> bool:
        if self.parts is None:
            return bool(self._note_question("__bool__", str.__len__(self) > 0))
        # Literal parts of a compound are never empty (`concat` drops those), so that one of them settles the answer
        # without a question. Else each atom is asked in turn, and the question of each is noted.
        if any(not isinstance(part, Traced) for part in self.parts):
            return True
        return any(bool(part) for part in self.parts)

    def is_part_of(self, text: str) -> bool:
        """`self in text`, as a question."""
        return bool(self._note_question("is_part_of", self.plain in text, text))

    def is_one_of(self, texts: tuple[str, ...]) -> bool:
        """`self in texts`, as a question."""
        return bool(
            self._note_question("is_one_of", any(str.__eq__(self, text) for text in texts), texts)
        )

    # By subscripts, so that each character is an atom; `len` notes the length as a question.
    def __iter__(self) -> Iterator[str]:
        return (self[i] for i in range(len(self)))

    # strings made from this one

    def _can_be_written_as_node(self, args: tuple[Any, ...]) -> bool:
        """Can an operation on this string be written as a node, (operation, own node, args)?

        A compound has no node of its own, a field among the arguments has another one, and deep nodes are too deep.
        """
        return (
            self.parts is None
            and self.depth < MAX_DEPTH
            and not any(isinstance(argument, Traced) for argument in args)
        )

    def _derive(
        self, text: str, operation: str, args: tuple[Any, ...], segments: Iterable[Segment]
    ) -> Traced:
        """What `operation` made of this string, its characters from `segments`; opaque where no node can say so."""
        if self._can_be_written_as_node(args):
            node = (operation, self.node, args)
            return make_atom_of_one_field(text, self.trace, node, tuple(segments), self.depth + 1)
        # The segments still hold: the characters are known, only the recipe is not.
        self.trace.opaque = True
        return make_atom_of_one_field(text, self.trace, ("leaf", UNKNOWN), tuple(segments))

    def _slice(self, start: int, stop: int, operation: str, args: tuple[Any, ...]) -> Traced:
        """Characters start:stop of this string, as the result of an operation."""
        return self._derive(
            self.plain[start:stop], operation, args, cut_segments(self.all_segments(), start, stop)
        )

    def all_segments(self) -> tuple[Segment, ...]:
        """All segments of the string: in order, covering it; also of a compound."""
        if self.parts is None:
            return self.segments
        segments: list[Segment] = []
        for part in self.parts:
            if isinstance(part, Traced):
                segments += part.segments
            else:
                segments.append(Segment(len(part), None, -1))
        return tuple(segments)

    def _derive_without_offsets(self, text: str, operation: str, args: tuple[Any, ...]) -> Traced:
        """What an operation made of this string where characters can't be followed one by one (`center`, a step).

        The field is still named where all of the string is from one.
        """
        paths = {segment.path for segment in self.all_segments() if segment.path is not None}
        path = paths.pop() if len(paths) == 1 else UNKNOWN
        return self._derive(text, operation, args, (Segment(len(text), path, -1),))

    def __getitem__(self, key: SupportsIndex | slice) -> str:
        if isinstance(key, slice):
            args = (key.start, key.stop, key.step)
            start, stop, step = key.indices(str.__len__(self))
            if step == 1:
                return self._slice(start, max(start, stop), "slice", args)
            return self._derive_without_offsets(self.plain[key], "slice", args)
        if not isinstance(key, SupportsIndex):
            raise TypeError(f"string indices must be integers, not {type(key).__name__!r}")
        index = key.__index__()
        length = str.__len__(self)
        if not -length <= index < length:
            # Jinja turns this into an undefined value. That it was out of range is an answer no guard can hold.
            self.trace.opaque = True
            raise IndexError("string index out of range")
        start = index % length
        return self._slice(start, start + 1, "__getitem__", (index,))

    def _strip(self, operation: str, chars: str | None) -> str:
        """`strip`, `lstrip` or `rstrip`; a slice of the string, wherever the white space in it ends."""
        if self.parts is not None and not isinstance(chars, Traced):
            return _strip_compound(self, operation, chars)
        text = self.plain
        start, stop = 0, len(text)
        if operation != "rstrip":
            start = len(text) - len(text.lstrip(chars))
        if operation != "lstrip":
            # Of a text that is white space alone both ends strip all of it: the slice must not run backwards.
            stop = max(len(text.rstrip(chars)), start)
        return self._slice(start, stop, operation, (chars,))

    def strip(self, chars: str | None = None, /) -> str:
        """As `str.strip`, with provenance."""
        return self._strip("strip", chars)

    def lstrip(self, chars: str | None = None, /) -> str:
        """As `str.lstrip`, with provenance."""
        return self._strip("lstrip", chars)

    def rstrip(self, chars: str | None = None, /) -> str:
        """As `str.rstrip`, with provenance."""
        return self._strip("rstrip", chars)

    def removeprefix(self, prefix: str, /) -> str:
        """As `str.removeprefix`, with provenance."""
        start = len(prefix) if self.plain.startswith(prefix) else 0
        return self._slice(start, len(self.plain), "removeprefix", (prefix,))

    def removesuffix(self, suffix: str, /) -> str:
        """As `str.removesuffix`, with provenance."""
        return self._slice(0, len(self.plain.removesuffix(suffix)), "removesuffix", (suffix,))

    def _make_atoms_for_pieces_in_order(
        self, pieces: Iterable[str], operation: str, args: tuple[Any, ...], gap: int = 0
    ) -> list[Traced]:
        """Atoms for pieces that stand in this string one after the other, at least `gap` characters apart.

        Args:
            pieces: what `operation` gave for the plain characters, in order.
            operation: `split`, `partition` and the like.
            args: its arguments.
            gap: characters of the separator between two pieces.

        Returns:
            One atom a piece. Its node is ("item", (operation, node, args), (i,)), so that a recipe splits once and
            takes the pieces it needs.
        """
        text = self.plain
        end = -gap  # so that the search for the first piece begins at 0
        ranges = []
        for piece in pieces:
            start = text.index(piece, end + gap)
            end = start + len(piece)
            ranges.append((start, end))
        if not self._can_be_written_as_node(args):
            return [self._slice(start, stop, operation, args) for start, stop in ranges]
        whole = (operation, self.node, args)
        # A template may loop over the pieces, or take the last: both depend on how many there are. So their number is
        # a question, though no method asked it.
        self.trace.answers[whole, "__len__", ()] = len(ranges)
        segments = self.all_segments()
        items = []
        for number, (start, stop) in enumerate(ranges):
            node = ("item", whole, (number,))
            own = tuple(cut_segments(segments, start, stop))
            items.append(
                make_atom_of_one_field(text[start:stop], self.trace, node, own, self.depth + 2)
            )
        return items

    def split(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list[str]:
        """As `str.split`, with the provenance of each piece."""
        return [
            *self._make_atoms_for_pieces_in_order(
                self.plain.split(sep, maxsplit), "split", (sep, int(maxsplit)), len(sep or "")
            )
        ]

    def rsplit(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list[str]:
        """As `str.rsplit`, with the provenance of each piece."""
        return [
            *self._make_atoms_for_pieces_in_order(
                self.plain.rsplit(sep, maxsplit), "rsplit", (sep, int(maxsplit)), len(sep or "")
            )
        ]

    def splitlines(self, keepends: bool = False) -> list[str]:
        """As `str.splitlines`, with the provenance of each line."""
        return [
            *self._make_atoms_for_pieces_in_order(
                self.plain.splitlines(keepends), "splitlines", (keepends,)
            )
        ]

    def partition(self, sep: str, /) -> tuple[str, str, str]:
        """As `str.partition`, with the provenance of each of the three pieces."""
        head, middle, tail = self._make_atoms_for_pieces_in_order(
            self.plain.partition(sep), "partition", (sep,)
        )
        return head, middle, tail

    def rpartition(self, sep: str, /) -> tuple[str, str, str]:
        """As `str.rpartition`, with the provenance of each of the three pieces."""
        head, middle, tail = self._make_atoms_for_pieces_in_order(
            self.plain.rpartition(sep), "rpartition", (sep,)
        )
        return head, middle, tail

    def replace(self, old: str, new: str, count: SupportsIndex = -1, /) -> str:
        """As `str.replace`, with provenance."""
        text, limit = self.plain, int(count)
        args = (old, new, limit)
        result = text.replace(old, new, limit)
        if not old or isinstance(new, Traced):
            return self._derive_without_offsets(result, "replace", args)
        own_segments = self.all_segments()
        segments: list[Segment] = []
        end = 0
        # A limit of -1 never gets to 0: all occurrences are replaced, as str.replace does.
        start = text.find(old)
        while limit and start >= 0:
            segments += cut_segments(own_segments, end, start)
            segments.append(Segment(len(new), None, -1))
            end = start + len(old)
            limit -= 1
            start = text.find(old, end)
        segments += cut_segments(own_segments, end, len(text))
        return self._derive(result, "replace", args, segments)

    def join(self, iterable: Iterable[str], /) -> str:
        """As `str.join`, with provenance."""
        return join(self, iterable)

    def __add__(self, other: str) -> str:
        return concat((self, other)) if isinstance(other, str) else str.__add__(self, other)

    def __radd__(self, other: str) -> str:
        return concat((other, self)) if isinstance(other, str) else NotImplemented

    def __mul__(self, count: SupportsIndex) -> str:
        return concat([self] * count.__index__())

    __rmul__ = __mul__

    # `%` may truncate, pad and round. Templates that format with a constant `%s` pattern are followed by
    # `traced_environment._fill_percent_s`; what gets here is not worth it.
    def __mod__(self, value: Any) -> str:
        return text_of_unknown_origin(self.plain % value, self.trace)

    def __rmod__(self, template: str) -> str:
        return text_of_unknown_origin(template % (self.plain,), self.trace)


def _make_noted_str_method(name: str) -> Callable[..., Any]:
    """A method that answers as `str.<name>`, and notes question and answer in the trace."""
    method = getattr(str, name)

    def ask(self: Traced, *args: Any) -> Any:
        try:
            answer = method(self, *args)
        except Exception:
            # `index` of what is not there: that it raised is an answer which no guard can hold.
            self.trace.opaque = True
            raise
        return self._note_question(name, answer, *args)

    ask.__name__ = name
    return ask


def _make_character_mapping_method(name: str) -> Callable[..., str]:
    """A method that gives the text of `str.<name>`, with the provenance of each character where it has one."""
    method = getattr(str, name)

    def change(self: Traced, *args: Any) -> str:
        text: str = method(self, *args)
        # One character out for one in: each has the place of its original. Not so where the length changes ("ß".upper()
        # is "SS"), nor where padding shifts the text.
        if len(text) == len(self.plain) and name not in ("center", "ljust", "rjust", "zfill"):
            return self._derive(text, name, args, self.all_segments())
        return self._derive_without_offsets(text, name, args)

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
    setattr(Traced, _name, _make_noted_str_method(_name))
for _name in MAPPINGS:
    setattr(Traced, _name, _make_character_mapping_method(_name))


def _make_method_of_unknown_provenance(name: str) -> Callable[..., Any]:
    """A method that gives what `str.<name>` gives, and says of it that its provenance is unknown."""
    method = getattr(str, name)

    def call(self: Traced, *args: Any, **kwargs: Any) -> Any:
        self.trace.opaque = True
        result = method(self, *args, **kwargs)
        return text_of_unknown_origin(result, self.trace) if isinstance(result, str) else result

    call.__name__ = name
    return call


for _name in dir(str):
    # `encode`, `translate`, and whatever a later Python adds: str's own would copy a field without its provenance.
    if not _name.startswith("_") and _name not in vars(Traced) and _name != "maketrans":
        setattr(Traced, _name, _make_method_of_unknown_provenance(_name))
# What a template's errors call the type of a field, as they do elsewhere.
Traced.__name__, Traced.__qualname__, Traced.__module__ = "str", "str", "builtins"


def make_atom_of_one_field(
    text: str, trace: Trace, node: Node, segments: tuple[Segment, ...], depth: int = 0
) -> Traced:
    """A string made by one expression over one field.

    Args:
        text: its characters.
        trace: where its questions are noted.
        node: how it is made from the field.
        segments: where its characters come from; their lengths add up to that of `text`.
        depth: how many operations `node` nests.
    """
    # Slots are set from outside, for `str.__new__` takes the text alone and an `__init__` would run for each of the
    # hundreds of atoms of a rendering.
    string = Traced(text)
    string.trace = trace
    string.node = node
    string.segments = segments
    string.parts = None
    string.depth = depth
    return string


def make_traced_input_string(text: str, trace: Trace, path: Path) -> Traced:
    """The string that stands at `path` in a template's input."""
    return make_atom_of_one_field(text, trace, ("leaf", path), (Segment(len(text), path, 0),))


def field_path_of_expression(node: Node) -> Path:
    """The field that an expression is over; each has exactly one, for two fields make a compound."""
    while node[0] != "leaf":
        node = node[1]
    path: Path = node[1]
    return path


def trace_texts_except_structure_keys(value: Any, path: Path, trace: Trace) -> Any:
    """The same value with an atom of `trace` for each text in it, but for the texts that are structure."""
    if isinstance(value, str):
        return make_traced_input_string(value, trace, path)
    if isinstance(value, dict):
        return {
            key: (
                item
                if key in STRUCTURE_KEYS and isinstance(item, str)
                else trace_texts_except_structure_keys(item, (*path, key), trace)
            )
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [
            trace_texts_except_structure_keys(item, (*path, index), trace)
            for index, item in enumerate(value)
        ]
    return value


def text_of_unknown_origin(text: str, trace: Trace) -> Traced:
    """Text that was made from fields in a way that can't be followed."""
    trace.opaque = True
    return make_atom_of_one_field(
        text, trace, ("leaf", UNKNOWN), (Segment(len(text), UNKNOWN, -1),)
    )


def make_compound(parts: tuple[str | Traced, ...], trace: Trace) -> Traced:
    """Atoms and literal text one after the other; `parts` are flat (no compound in them) and not all literal."""
    string = Traced("".join(parts))
    string.trace = trace
    string.parts = parts
    string.node, string.segments, string.depth = (), (), 0
    return string


def _append_merging_literals(parts: list[str | Traced], part: str | Traced) -> None:
    """Append a part; literal text joins the literal text before it, so that two never stand side by side.

    Comparisons of renderings (`inference_contract.find_prefix_end`) go part by part and count on that.
    """
    if parts and not isinstance(part, Traced) and not isinstance(parts[-1], Traced):
        parts[-1] += part
    else:
        parts.append(part)


def concat(strings: Iterable[str]) -> str:
    """Concatenate strings as `"".join` does, with provenance.

    Returns:
        A plain str where all strings are, the string itself where it is the only one, else a compound.
    """
    parts: list[str | Traced] = []
    trace = None
    for string in strings:
        if not isinstance(string, Traced):
            literal = str.__str__(string)  # of Markup too, which would escape what it is added to
            if literal:
                _append_merging_literals(parts, literal)
            continue
        trace = string.trace
        if string.parts is None:
            parts.append(string)
        else:
            for part in string.parts:
                _append_merging_literals(parts, part)
    if trace is None:
        return "".join(parts)
    return parts[0] if len(parts) == 1 else make_compound(tuple(parts), trace)


def join(separator: str, strings: Iterable[str]) -> str:
    """Join strings by a separator as `separator.join` does, with provenance."""
    pieces: list[str] = []
    for string in strings:
        if pieces:
            pieces.append(separator)
        pieces.append(string)
    return concat(pieces)


def plain_text(text: str) -> str:
    """The characters of a rendering as a plain str, for code that is no template.

    Whoever compares or hashes a `Traced` asks its fields, and the trace notes that as if the template had asked.
    """
    return text.plain if isinstance(text, Traced) else text


def literal_and_field_parts(text: str) -> tuple[str | Traced, ...]:
    """The literal stretches and the atoms that a string is made of, in order."""
    if isinstance(text, Traced):
        return (text,) if text.parts is None else text.parts
    return (text,) if text else ()


def cut_segments(segments: Iterable[Segment], start: int, stop: int) -> list[Segment]:
    """The segments of characters start:stop of a string that `segments` cover; those at the ends are shortened."""
    inside: list[Segment] = []
    position = 0
    for length, path, offset in segments:
        low, high = max(start, position), min(stop, position + length)
        if low < high:
            skipped = low - position
            inside.append(Segment(high - low, path, offset + skipped if offset >= 0 else -1))
        position += length
    return inside


def _strip_compound(string: Traced, operation: str, chars: str | None) -> str:
    """Strip the parts at the ends of a compound: part after part, until one is left with a character.

    Whether an atom is left empty is asked of it (`if rest[end]`), so that a recipe holds only for rows where the same
    parts survive.
    """
    assert string.parts is not None
    rest = list(string.parts)
    for end, method in ((0, "lstrip"), (-1, "rstrip")):
        if operation in ("strip", method):
            while rest:
                rest[end] = getattr(rest[end], method)(chars)
                if rest[end]:
                    break
                del rest[end]
    return concat(rest)


def _is_settled_by_literals(string: Traced, question: str, args: tuple[Any, ...]) -> bool:
    """Is the answer the same whatever the fields of a compound hold, by its literal text alone?

    `'<think>' in '<think>' ~ message.content` is True for every row. Templates ask such things of what they have just
    put together; without this rule each would lose its recipe.
    """
    assert string.parts is not None
    match question, args:
        case "__contains__", (str(wanted),):
            return any(wanted in part for part in string.parts if not isinstance(part, Traced))
        case "startswith", (str(wanted),):
            return not isinstance(string.parts[0], Traced) and len(string.parts[0]) >= len(wanted)
        case "endswith", (str(wanted),):
            return not isinstance(string.parts[-1], Traced) and len(string.parts[-1]) >= len(wanted)
    return False
