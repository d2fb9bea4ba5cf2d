"""Trace: what a symbolic run of a script did, in order, as events: calls of libraries, what was
set, and where.

How it works: the interpreter appends events; each knows the frames around it (loops, branches, `with` blocks, function
calls, callbacks), innermost first. `Trace.calls` finds calls by the qualified name of what is called, `Trace.methods`
by the method's name; `Trace.uses` goes from a value to what was made of it.

The trade-off: both arms of a branch that is not decided are run, one after the other, and a loop's body twice; so an
event says that a call may happen, in this order, not that it does.
"""

from __future__ import annotations

import ast
import fnmatch
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from truetune.source.symbolic_execution.values_of_run import (
    Class,
    Constant,
    Function,
    Instance,
    Result,
    Value,
    parts_of_value,
)

if TYPE_CHECKING:
    from truetune.source.parsed_source_file import Module


@dataclass(eq=False, frozen=True, slots=True)
class Frame:
    """What an event stands in: one loop, branch, `with` block, function call or callback, and what is around that."""

    kind: str
    """`loop`, `comprehension`, `branch`, `with`, `call`, `callback`, `try` or `except`"""
    node: ast.AST
    outer: Frame | None
    value: Value | None = None
    """What is iterated, the branch's test, the context manager, or the function"""
    taken: bool = True
    """Of a branch: is its test true here?"""
    repeated: bool = False
    """Of a loop: is this a later pass?"""
    given_to: CallEvent | None = None
    """Of a callback: the call that was handed the function"""

    def self_and_outer_frames(self) -> Iterator[Frame]:
        """This frame and those around it, from the inside out."""
        frame: Frame | None = self
        while frame is not None:
            yield frame
            frame = frame.outer


@dataclass(eq=False, slots=True)
class Event:
    """Something that the run did."""

    number: int
    """Its place in the order of the run"""
    node: ast.AST
    home: Module
    """The file that it stands in"""
    frame: Frame | None

    def frames(self, *kinds: str) -> Iterator[Frame]:
        """The frames around the event of these kinds (all kinds if none are given), from the inside
        out.
        """
        if self.frame is not None:
            yield from (
                one for one in self.frame.self_and_outer_frames() if not kinds or one.kind in kinds
            )

    @property
    def is_in_later_loop_pass(self) -> bool:
        """Does it stand in a later pass of a loop, so that an earlier event is the same?"""
        return any(frame.repeated for frame in self.frames("loop", "comprehension"))


@dataclass(eq=False, slots=True)
class CallEvent(Event):
    """A call of something that the project does not define."""

    names: tuple[str, ...]
    """What is called, qualified; for a class of the project, the names of its bases"""
    method: str | None
    """The method's name, where an object's method is called"""
    receiver: Value | None
    """The object whose method is called"""
    args: tuple[Value, ...]
    keywords: dict[str, Value]
    is_open: bool
    """There are `*args` or `**kwargs` of which nothing is known"""
    result: Result = field(init=False)
    returned_by_callbacks: list[tuple[Function, Value]] = field(default_factory=list)
    """The functions of the project that it was handed, each with what it gives back"""
    returned_by_hooks: list[tuple[Function, Value]] = field(default_factory=list)
    """The methods of the project's objects that it calls by itself, each with what it gives back"""

    def __post_init__(self) -> None:
        self.result = Result(self, node=self.node)

    @property
    def inputs(self) -> tuple[Value, ...]:
        """Receiver and arguments."""
        receiver = () if self.receiver is None else (self.receiver,)
        return (*receiver, *self.args, *self.keywords.values())

    def named(self, *patterns: str) -> bool:
        """Is one of its names like one of these patterns (`trl.*Trainer`)?"""
        return any(fnmatch.fnmatchcase(name, one) for name in self.names for one in patterns)

    def argument(self, position: int, name: str) -> Value | None:
        """The argument of that name or at that position (-1: by name only); None where it is not seen."""
        if name in self.keywords:
            return self.keywords[name]
        return self.args[position] if 0 <= position < len(self.args) else None

    def lacks(self, name: str, position: int = -1) -> bool:
        """Is this argument certainly not given?"""
        return not self.is_open and self.argument(position, name) is None


@dataclass(eq=False, slots=True)
class StoreEvent(Event):
    """An attribute or item of an object is set: `tokenizer.padding_side = "left"`, `labels[mask] = -100`."""

    base: Value
    key: str | Value
    """The attribute's name, or the item's index"""
    value: Value
    is_augmented: bool = False
    """Is it `+=` or the like, whose value holds the earlier one?"""


@dataclass(eq=False, slots=True)
class NameEvent(Event):
    """A name is bound: `prediction = ...`; also an argument of a function of the project."""

    name: str
    value: Value
    is_augmented: bool = False


@dataclass(eq=False, slots=True)
class ReturnEvent(Event):
    """A function of the project gives a value back."""

    function: Function
    value: Value


class Trace:
    """The events of one run, from one file that is started."""

    def __init__(self, entry: Module) -> None:
        self.entry = entry
        self.events: list[Event] = []
        self.values: list[Value] = []
        """Values that were made of others, for `uses`"""
        self.classes: list[Class] = []
        """Classes of the project, as they were defined"""
        self.instances: list[Instance] = []
        self.is_whole = True
        """False where a limit ended the run early: what is missing in it proves nothing then"""
        self._calls_by_patterns: dict[tuple[str, ...], tuple[CallEvent, ...]] = {}

    def calls(self, *patterns: str) -> Iterator[CallEvent]:
        """Calls of what is named so, in order; each place of the text once for each function call that leads to it."""
        # Rules ask for the same names again for each value that they follow: 800 times in a script of 700 lines.
        if patterns not in self._calls_by_patterns:
            found = tuple(
                event for event in self._calls_without_later_passes if event.named(*patterns)
            )
            self._calls_by_patterns[patterns] = found
        yield from self._calls_by_patterns[patterns]

    def methods(self, *names: str) -> Iterator[CallEvent]:
        """Calls of a method of that name, in order, later passes of loops left out."""
        for event in self._calls_without_later_passes:
            if event.method in names:
                yield event

    @cached_property
    def _calls_without_later_passes(self) -> list[CallEvent]:
        """Every call of a library, without later passes of loops."""
        return [event for event in self.all_calls if not event.is_in_later_loop_pass]

    @cached_property
    def all_calls(self) -> list[CallEvent]:
        """Every call of a library, later passes of loops too."""
        return [event for event in self.events if isinstance(event, CallEvent)]

    @cached_property
    def stores(self) -> list[StoreEvent]:
        """Every store: each attribute or item that is set."""
        return [event for event in self.events if isinstance(event, StoreEvent)]

    @cached_property
    def _uses_by_value_id(self) -> dict[int, list[Value | Event]]:
        """Identity of a value -> the values and events that are made of it."""
        uses: dict[int, list[Value | Event]] = {}
        for value in self.values:
            for operand in parts_of_value(value):
                uses.setdefault(id(operand), []).append(value)
        for event in self.events:
            for given in _inputs_of(event):
                uses.setdefault(id(given), []).append(event)
        return uses

    def uses(self, value: Value) -> list[Value | Event]:
        """The values and events that were made of a value directly: an attribute, a sum, a call, a
        name, a store.
        """
        return self._uses_by_value_id.get(id(value), [])


def _inputs_of(event: Event) -> tuple[Value, ...]:
    """The values that an event takes."""
    if isinstance(event, CallEvent):
        return event.inputs
    if isinstance(event, StoreEvent):
        key = (event.key,) if isinstance(event.key, Value) else ()
        return (event.base, event.value, *key)
    if isinstance(event, NameEvent | ReturnEvent):
        return (event.value,)
    return ()


def is_constant_none(value: Value | None) -> bool:
    """Is it the constant None?"""
    return isinstance(value, Constant) and value.value is None
