"""The inference contract: which characters of a rendering the model must produce by itself.

For an assistant turn that is everything from the end of the serving prompt
(`render(messages[:i], add_generation_prompt=True)`) through the stop token that ends the turn. Where the
template rewrites earlier turns, one rendering can't show every turn as it will be served.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import takewhile
from typing import NamedTuple

from truetune.data.conversation import Conversation
from truetune.errors import TemplateError
from truetune.render.plan import Mark, Plan, TurnPlan, leaf_path, plan
from truetune.render.template import Template
from truetune.render.traced import Trace, Traced
from truetune.spec.run import RunSpec

Parts = tuple[str | Traced, ...]

OWN = ("messages", "tools", "documents", "add_generation_prompt")
"""What a template is always given."""
REWRITTEN = "the template rewrites this turn once a later one follows"
NO_PROMPT = "a conversation that begins with the assistant has no serving prompt"


class Stops(NamedTuple):
    """How turns end, as text."""

    known: tuple[str, ...]
    """Stop tokens that the tokenizer, generation_config or template name."""
    control: re.Pattern[str] | None
    """Any control token."""


def stops_of(known: Iterable[str], control: Iterable[str]) -> Stops:
    """Stops from the tokens that are known to end turns, and all control tokens."""
    pattern = "|".join(re.escape(token) for token in sorted(control, key=len, reverse=True))
    return Stops(tuple(known), re.compile(pattern) if pattern else None)


def plans(template: Template, row: Conversation, spec: RunSpec, stops: Stops, trace: Trace) -> list[Plan]:
    """The training examples of a chat.

    Sets `trace.opaque` where they hold for this row alone. Raises TemplateError where the template does.
    """
    shown = _Renderings(template, row, spec, trace)
    whole = shown.text(len(row.messages))
    bos = template.special.get("bos_token")
    weights = _weights(row, spec)
    turns = [(_turn(shown, i, weights[i], stops), shown.through(i)) for i in weights]
    agreed = [_agrees(turn, own, whole, trace) for turn, own in turns]
    served = all(ok or not turn.weight for (turn, _), ok in zip(turns, agreed, strict=True))
    if served or spec.history == "single" or spec.learn.what == "all":
        found = [
            _moved(turn, own, whole, trace) if ok else _rewritten(turn)
            for (turn, own), ok in zip(turns, agreed, strict=True)
        ]
        return [plan(whole, tuple(found), None, row, bos)]
    return [plan(own, (turn,), turn.message, row, bos) for turn, own in turns if turn.weight]


class _Renderings:
    """What the template makes of the first n messages, each rendered once."""

    def __init__(self, template: Template, row: Conversation, spec: RunSpec, trace: Trace) -> None:
        self.template = template
        self.inputs = template.inputs(row.messages, row.tools, row.documents)
        self.variables = {**spec.template_kwargs, **row.template_kwargs}
        for name in self.variables:
            if name in OWN or name in template.special:
                raise TemplateError(f"a variable for the template must not be called {name}, which it has already")
        self.trace = trace
        self._texts: dict[int, Parts] = {}

    def text(self, count: int) -> Parts:
        if count not in self._texts:
            self._texts[count] = self._run(count, False)
        return self._texts[count]

    def through(self, index: int) -> Parts:
        """The text up to a turn; the whole where the template refuses to end there."""
        try:
            return self.text(index + 1)
        except TemplateError:
            return self.text(len(self.inputs.messages))

    def prompt(self, count: int) -> Parts:
        return self._run(count, True)

    def _run(self, count: int, generation_prompt: bool) -> Parts:
        return self.template.run(self.inputs, self.trace, count, generation_prompt, self.variables)


def _weights(row: Conversation, spec: RunSpec) -> dict[int, float]:
    """The weight of each assistant turn, 0 where it is not to be learned."""
    turns = [i for i, message in enumerate(row.messages) if message.get("role") == "assistant"]
    first = 0
    if spec.learn.what == "last" or (spec.learn.what == "completion" and row.prompt_messages is None):
        first = turns[-1] if turns else 0
    elif spec.learn.what == "completion":
        first = row.prompt_messages or 0
    return {
        i: float(row.messages[i].get("weight", 1.0)) if i >= first and row.messages[i].get("train", True) else 0.0
        for i in turns
    }


def _turn(shown: _Renderings, index: int, weight: float, stops: Stops) -> TurnPlan:
    own = shown.through(index)
    fields = [
        i for i, part in enumerate(own) if isinstance(part, Traced) and leaf_path(part.node)[:2] == ("messages", index)
    ]
    start, skew = _start(shown, index, own)
    if start is None:
        if not fields:
            return TurnPlan(index, None, None, None, skew, 0.0)
        start = Mark(fields[0], 0)
    inside = [i for i in range(start.piece, len(own)) if isinstance(own[i], Traced)]
    mine = list(takewhile(lambda i: not _later(own[i], index), inside))
    closing = Mark(mine[-1] + 1, 0) if mine else start
    found = _stop(own, closing, stops)
    if found is None:
        return TurnPlan(index, start, None, closing, skew, weight)
    stop, length = found
    return TurnPlan(index, start, stop, stop._replace(offset=stop.offset + length), skew, weight)


def _later(part: str, index: int) -> bool:
    """Is it a field of a message after this one?"""
    path = leaf_path(part.node) if isinstance(part, Traced) else ()
    return path[:1] == ("messages",) and int(path[1]) > index


def _start(shown: _Renderings, index: int, own: Parts) -> tuple[Mark | None, str | None]:
    if index == 0:
        return None, NO_PROMPT
    try:
        prompt = shown.prompt(index)
    except TemplateError as error:
        return None, f"the serving prompt can't be rendered: {error}"
    end = prefix(prompt, own, shown.trace)
    if end is not None:
        return end, None
    return None, _ending(prompt)


def _ending(prompt: Parts) -> str:
    tail = prompt[-1] if prompt else ""
    shown = "a field of the last message" if isinstance(tail, Traced) else repr(tail[-40:])
    return f"the serving prompt ends with {shown}, which the training text does not have there"


def _stop(own: Parts, closing: Mark, stops: Stops) -> tuple[Mark, int] | None:
    """The stop token in the literal text that closes a turn, and its length."""
    if closing.piece >= len(own) or isinstance(own[closing.piece], Traced):
        return None
    tail = own[closing.piece]
    places = [(at, token) for token in stops.known if (at := tail.find(token, closing.offset)) >= 0]
    if places:
        at, token = min(places, key=lambda place: (place[0], -len(place[1])))
        return Mark(closing.piece, at), len(token)
    found = list(stops.control.finditer(tail, closing.offset)) if stops.control else []
    return (Mark(closing.piece, found[-1].start()), len(found[-1][0])) if found else None


def _agrees(turn: TurnPlan, own: Parts, whole: Parts, trace: Trace) -> bool:
    """Does the whole conversation begin with this turn as it is served?"""
    if turn.end is None or own is whole:
        return True
    head = own[: turn.end.piece]
    if turn.end.offset:
        head = (*head, own[turn.end.piece][: turn.end.offset])
    return prefix(head, whole, trace) is not None


def _rewritten(turn: TurnPlan) -> TurnPlan:
    """A turn that stands otherwise in the whole conversation: its marks mean nothing there."""
    return TurnPlan(turn.message, None, None, None, turn.skew or REWRITTEN if turn.weight else turn.skew, 0.0)


def _moved(turn: TurnPlan, own: Parts, whole: Parts, trace: Trace) -> TurnPlan:
    """The turn with its marks in the whole conversation, whose parts may be cut otherwise."""
    if turn.end is None or all(_same(a, b) for a, b in zip(own[: turn.end.piece], whole, strict=False)):
        return turn

    trace.opaque = True

    def move(mark: Mark | None) -> Mark | None:
        if mark is None:
            return None
        return _locate(whole, sum(str.__len__(part) for part in own[: mark.piece]) + mark.offset)

    return turn._replace(start=move(turn.start), stop=move(turn.stop), end=move(turn.end))


def _same(one: str, other: str) -> bool:
    if isinstance(one, Traced) or isinstance(other, Traced):
        return isinstance(one, Traced) and isinstance(other, Traced) and one.node == other.node
    return one == other


def prefix(head: Parts, text: Parts, trace: Trace) -> Mark | None:
    """The mark in `text` at which `head` ends, None where text does not begin with head.

    Sets `trace.opaque` where that depends on more of the fields than how they begin.
    """
    for i, (mine, other) in enumerate(zip(head, text, strict=False)):
        if _same(mine, other):
            continue
        if not isinstance(mine, Traced) and not isinstance(other, Traced):
            if i == len(head) - 1 and other.startswith(mine):
                return Mark(i, len(mine))
            if not other.startswith(mine) and not mine.startswith(other):
                return None
            common = min(len(mine), len(other))
            if _part_ways((mine[common:], *head[i + 1 :]), (other[common:], *text[i + 1 :])):
                return None
        elif _part_ways(head[i:], text[i:]):
            return None
        return _by_position("".join(head), text, trace)
    return Mark(len(head), 0) if len(head) <= len(text) else _by_position("".join(head), text, trace)


def _part_ways(one: Parts, other: Parts) -> bool:
    """Do two renderings differ in their next character, literal text in one and a field in the other?

    The field's beginning becomes one of the questions of its trace.
    """
    first, second = next(filter(None, one), ""), next(filter(None, other), "")
    if isinstance(first, Traced) == isinstance(second, Traced):
        return False
    field, literal = (first, second) if isinstance(first, Traced) else (second, first)
    return bool(literal) and not field.startswith(literal[0])


def _by_position(head: str, text: Parts, trace: Trace) -> Mark | None:
    trace.opaque = True
    if not "".join(text).startswith(head):
        return None
    return _locate(text, len(head))


def _locate(text: Parts, position: int) -> Mark:
    """The mark before a character."""
    for i, part in enumerate(text):
        length = str.__len__(part)
        if position < length:
            return Mark(i, position)
        position -= length
    return Mark(len(text), 0)
