"""The records of a protocol: the actions on an object, the states that they lead to, and the orders that are broken.

A protocol is about one kind of object (a model, a GradScaler, a tokenizer). Each action says which calls or stores it
is and which object it acts on. A transition leads from a state to the next; a broken order is an action that must not
happen in a state.

The trade-off: one object has a state in each protocol that knows it, so a protocol stays a few states long, and two
protocols can't ask for each other's states.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from truetune.checks.findings import Severity
from truetune.settings.release_pins import Pins
from truetune.source.symbolic_execution.trace_of_events import Event
from truetune.source.symbolic_execution.values_of_run import Value

ProtocolFamily = Literal["setup", "step", "saving"]
"""Which rule reports the broken orders of a protocol"""
START = "start"
"""The state of an object before any action"""


class EveryObject:
    """The type of EVERY_OBJECT."""


EVERY_OBJECT = EveryObject()
"""What an action acts on whose call names no object of the protocol: `clip_grad_norm_` does not name the scaler"""
ActedObject = Value | EveryObject | None


@dataclass(frozen=True, slots=True)
class Action:
    """Something that a script does to an object of a protocol."""

    name: str
    """What transitions and broken orders call it"""
    text: str
    """How it is written, for readers: `scaler.unscale_(optimizer)`"""
    find_object: Callable[[Event], ActedObject]
    """The object that an event acts on; None where the event is no such action"""
    functions: tuple[str, ...] = ()
    """Patterns of qualified names that are called"""
    methods: tuple[str, ...] = ()
    """Names of methods that are called"""
    attributes: tuple[str, ...] = ()
    """Attributes that are set"""
    find_read: Callable[[Event], int | None] | None = None
    """The event at which a value was computed that the action is given, where its age counts"""
    moves_all: bool = False
    """Where it names no object: does it act on each one, and not on the only one?"""
    is_end: bool = False
    """Is it the end of the script, which no event stands for?"""


@dataclass(frozen=True, slots=True)
class State:
    """A state of an object."""

    name: str
    meaning: str


@dataclass(frozen=True, slots=True)
class Transition:
    """An action that leads from some states to another."""

    action: str
    to: str
    sources: tuple[str, ...] = ()
    """The states that it leads away from; empty for all, also where the state is not known"""


@dataclass(frozen=True, slots=True)
class Releases:
    """The releases of a package for which an order is broken."""

    package: str
    first: str = ""
    """The first of them; empty where all older ones are among them"""
    gone: str = ""
    """The first release after them; empty where the newest one is among them"""

    def __str__(self) -> str:
        bounds = [f">={self.first}"] if self.first else []
        bounds += [f"<{self.gone}"] if self.gone else []
        return self.package + ",".join(bounds)

    def may_run(self, pins: Pins) -> bool:
        """May one of them run a script?

        Args:
            pins: The releases that the script, or the files around it, ask for.

        Returns:
            False only where another release is surely asked for.
        """
        if self.first and pins.is_release_surely_before(self.package, self.first):
            return False
        return (
            not self.gone
            or pins.age_of_asked_releases(self.package, self.gone, self.gone) != "current"
        )


@dataclass(frozen=True, slots=True)
class BrokenOrder:
    """An action that must not happen in a state."""

    name: str
    state: str
    action: str
    message: str
    """What is wrong and what it does; `{first}` and `{second}` are the two places' code"""
    remedy: str
    source: str
    """Where the order is documented, or the harm reported"""
    severity: Severity = "error"
    releases: Releases | None = None
    """The releases that it holds for; None for all"""
    shows_past: bool = False
    """The action only proves the harm: the two latest actions that changed the state are shown"""
    comes_around: bool = False
    """It counts only where the action is one that led to the state, in the next pass of a loop"""
    in_one_pass: bool = False
    """It counts only where the loop around the latest action is also around this one"""
    in_each_pass: bool = False
    """It counts only where no test that counts passes decides whether the action is done"""
    reads_old_value: bool = False
    """It counts only where the action is given a value that was computed before the latest action"""
    unless_done: tuple[str, ...] = ()
    """Actions of the protocol that silence it where the script does them anywhere"""


@dataclass(frozen=True, slots=True)
class Protocol:
    """The states of one kind of object, and what may happen in which."""

    name: str
    title: str
    family: ProtocolFamily
    about: str
    """The kind of object: `a GradScaler of torch`"""
    states: tuple[State, ...]
    actions: tuple[Action, ...]
    transitions: tuple[Transition, ...]
    broken_orders: tuple[BrokenOrder, ...]
    silenced_by: tuple[str, ...] = ()
    """Texts in the code of the program that make its orders unknown"""

    def __post_init__(self) -> None:
        """Raise ValueError where a state or an action is named that the protocol does not have."""
        states = {START, *(one.name for one in self.states)}
        actions = {one.name for one in self.actions}
        for one in self.transitions:
            _require(one.action in actions, f"{self.name}: no action {one.action}")
            _require({one.to, *one.sources} <= states, f"{self.name}: unknown state in {one}")
        for order in self.broken_orders:
            named = {order.action, *order.unless_done}
            _require(named <= actions, f"{self.name}: no action {order.action}")
            _require(order.state in states, f"{self.name}: no state {order.state}")


def _require(holds: bool, problem: str) -> None:
    """Raise ValueError where something does not hold."""
    if not holds:
        raise ValueError(problem)
