"""Follows the states of the objects of a protocol over a symbolic run, and gives the orders that are broken.

How it works: each object has paths, each with a state and the events that led to it. An event moves the paths that can
lead to it; paths through another arm of a branch, or through one that returns, are left alone. An event in a branch may
not happen, so each path is also kept as it was, as an uncertain one. An uncertain path breaks no order until another
event moves it: whoever unscales `if use_amp` is not said to clip before it unscales.

The trade-off: conditions are compared by their text, so two that differ and mean the same are taken for independent.
An object that goes to a function of an unknown library has no known state after it. Both make the rules miss orders
rather than report right ones.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

from truetune.checks.source.evidence.training_protocol.can_one_run_pass_two_events import can_follow
from truetune.checks.source.evidence.training_protocol.does_loop_act_only_in_some_passes import (
    is_done_in_some_passes,
)
from truetune.checks.source.evidence.training_protocol.find_acted_objects import ways_to_objects
from truetune.checks.source.evidence.training_protocol.protocol_records import (
    START,
    Action,
    BrokenOrder,
    Protocol,
    Transition,
)
from truetune.source.parsed_source_file import Module
from truetune.source.symbolic_execution.run_scripts_and_keep_traces import (
    traces_of_scripts_that_reach_file,
)
from truetune.source.symbolic_execution.trace_of_events import (
    CallEvent,
    Event,
    Frame,
    StoreEvent,
    Trace,
)
from truetune.source.symbolic_execution.values_of_run import Value

UNKNOWN_STATE = "unknown"
"""The state of an object that a function got of which nothing is known"""
MAX_PATHS = 12
"""Paths of one object that are kept. Chosen, not measured: four branches on the way of one object make eight."""
MAX_TRAIL = 4
"""Events that a path keeps: a finding shows two, and an action that comes around is at most three back"""
MAX_UNNAMED = 24
"""Actions that name no object and are kept for objects that come later: a loop passed twice has a few of them"""
COPIES = ("copy.copy", "copy.deepcopy")
"""Functions that give an object of its own, whose state no longer follows the other's"""
KNOWN_LIBRARIES = frozenset(
    (
        "torch", "transformers", "peft", "trl", "accelerate", "datasets", "unsloth", "unsloth_zoo",
        "bitsandbytes", "evaluate", "wandb", "tqdm", "numpy", "lightning", "pytorch_lightning",
        "deepspeed", "torchinfo", "copy", "functools", "itertools", "os", "json", "math", "random",
        "logging", "sys", "time", "safetensors", "huggingface_hub", "ema_pytorch", "mlflow",
    )
)  # fmt: skip
"""Libraries whose functions change an object only by an action of the table"""
EAGER_METHODS = frozenset(("map", "filter", "apply", "submit", "spawn", "launch"))
"""Methods and functions that run the function they are given at once"""


@dataclass(frozen=True, slots=True)
class Occurrence:
    """One action of a run."""

    action: Action
    event: Event | None
    """None for the end of the script"""
    read_at: int | None = None
    """The number of the event at which a value was computed that it is given"""


@dataclass(frozen=True, slots=True)
class Step:
    """An action that moved an object to a state."""

    occurrence: Occurrence
    state: str


@dataclass(frozen=True, slots=True)
class Path:
    """One way in which an object may have got to its state."""

    state: str = START
    trail: tuple[Step, ...] = ()
    """The latest steps, the last one at the end"""
    is_uncertain: bool = False
    """Does it rest on an action that may have happened and changed the state?"""


ObjectKey = frozenset[int]
"""The identities of the values that an object may be: one, or those that the arms of a branch make under one name"""


@dataclass(slots=True)
class TrackedObject:
    """The paths of one object in one function that a library runs, or in the script."""

    paths: list[Path] = field(default_factory=lambda: [Path()])

    def forget(self) -> None:
        """Its state is no longer known."""
        self.paths = [Path(UNKNOWN_STATE)]


@dataclass(frozen=True, slots=True)
class BrokenPlace:
    """A broken order at its place."""

    protocol: Protocol
    order: BrokenOrder
    first: Event
    """The action that led to the state"""
    second: Event
    """The action that must not follow it"""


def broken_orders(module: Module, protocols: tuple[Protocol, ...]) -> Iterator[BrokenPlace]:
    """The broken orders whose second place is in a file.

    Args:
        module: A file that is judged.
        protocols: The protocols that are asked.

    Yields:
        Each pair of places once for each order, in the order of the runs.
    """
    seen = set()
    wanted = [one for one in protocols if not module.mentions(*one.silenced_by)]
    for trace in traces_of_scripts_that_reach_file(module):
        for protocol in wanted:
            for place in _ObjectStates(trace, protocol).follow():
                key = (place.order.name, place.first.node, place.second.node)
                is_here = place.second.home.path == module.path and _may_release_run_file(
                    module, place.order
                )
                if is_here and key not in seen:
                    seen.add(key)
                    yield place


class _ObjectStates:
    """The states of the objects of one protocol in one run."""

    def __init__(self, trace: Trace, protocol: Protocol) -> None:
        self._trace = trace
        self._protocol = protocol
        self._objects: dict[tuple[int, ObjectKey], TrackedObject] = {}
        """Identity of the frame that objects live in, and the object -> its paths"""
        self._unnamed: dict[int, list[Occurrence]] = {}
        """Identity of the frame -> the actions in it that move each object, also those that come later"""
        self._actions_by_call: dict[tuple[tuple[str, ...], str | None], tuple[Action, ...]] = {}
        """Kept, for a run calls the same names thousands of times"""
        self._done: set[str] = set()
        """Actions that the script does anywhere"""
        self._places: list[BrokenPlace] = []

    def follow(self) -> list[BrokenPlace]:
        """Follow the whole run, and return what is broken."""
        ends = [action for action in self._protocol.actions if action.is_end]
        for event in self._trace.events:
            self._take_event(event)
        for action in ends:
            for tracked in self._objects.values():
                self._move(tracked, Occurrence(action, None))
        return [one for one in self._places if self._done.isdisjoint(one.order.unless_done)]

    def _take_event(self, event: Event) -> None:
        """Move the objects that an event acts on."""
        is_action = False
        for action in self._possible_actions(event):
            acted = action.find_object(event)
            if acted is None:
                continue
            is_action = True
            self._done.add(action.name)
            read_at = None if action.find_read is None else action.find_read(event)
            occurrence = Occurrence(action, event, read_at)
            if isinstance(acted, Value):
                self._move_named_object(acted, occurrence)
            else:
                self._move_unnamed(occurrence)
        if isinstance(event, CallEvent) and not is_action and self._objects:
            if not _is_known_call(event):
                self._forget_arguments(event)

    def _possible_actions(self, event: Event) -> tuple[Action, ...]:
        """The actions that an event may be, by the name of what it calls or sets."""
        if isinstance(event, CallEvent):
            key = (event.names, event.method)
            if key not in self._actions_by_call:
                self._actions_by_call[key] = _actions_called(self._protocol, *key)
            return self._actions_by_call[key]
        if isinstance(event, StoreEvent):
            return tuple(one for one in self._protocol.actions if event.key in one.attributes)
        return ()

    def _move_named_object(self, acted: Value, occurrence: Occurrence) -> None:
        """Move the object that an action names; another one that may be the same is forgotten."""
        assert occurrence.event is not None
        key = key_of_object(acted)
        scope = _later_run_function_id_of_event(occurrence.event)
        # Every layer of a model is called: what no action has moved yet, and this one does not, needs no state.
        starts = _transition(self._protocol, START, occurrence.action.name) is not None
        if (
            not starts
            and not self._unnamed.get(scope)
            and not self._objects_that_may_be_same(scope, key)
        ):
            return
        tracked = self._tracked_object(scope, key)
        for other in self._objects_that_may_be_same(scope, key):
            if other is not tracked:
                other.forget()
        self._move(tracked, occurrence)

    def _tracked_object(self, scope: int, key: ObjectKey) -> TrackedObject:
        """The paths of an object; a new one has those of the objects that it may be."""
        if (scope, key) in self._objects:
            return self._objects[scope, key]
        tracked = TrackedObject()
        overlapping = self._objects_that_may_be_same(scope, key)
        if overlapping:
            tracked.paths = self._paths_of_branch_alternatives(scope, key)
        self._objects[scope, key] = tracked
        if not overlapping:
            # It has been moved by the actions before it that move each object.
            for earlier in self._unnamed.get(scope, ()):
                self._move(tracked, earlier)
        return tracked

    def _objects_that_may_be_same(self, scope: int, key: ObjectKey) -> list[TrackedObject]:
        """The objects that may be the same as this one."""
        return [
            tracked
            for (frame, other), tracked in self._objects.items()
            if frame == scope and not key.isdisjoint(other)
        ]

    def _paths_of_branch_alternatives(self, scope: int, key: ObjectKey) -> list[Path]:
        """The paths of what the arms of a branch made; unknown where the object is only a part of another."""
        paths: list[Path] = []
        known: set[int] = set()
        for (frame, other), tracked in self._objects.items():
            if frame != scope or key.isdisjoint(other):
                continue
            if not other < key:
                return [Path(UNKNOWN_STATE)]
            paths += tracked.paths
            known |= other
        return paths if known == key else [*paths, Path()]

    def _move_unnamed(self, occurrence: Occurrence) -> None:
        """Move the object of an action that names none: the only one of the script, or each."""
        assert occurrence.event is not None
        scope = _later_run_function_id_of_event(occurrence.event)
        if occurrence.action.moves_all:
            earlier = self._unnamed.setdefault(scope, [])
            earlier.append(occurrence)
            del earlier[:-MAX_UNNAMED]
        tracked = [one for (frame, _), one in self._objects.items() if frame == scope]
        for one in tracked:
            if len(tracked) == 1 or occurrence.action.moves_all:
                self._move(one, occurrence)
            else:
                one.forget()

    def _forget_arguments(self, event: CallEvent) -> None:
        """Forget the states of what an unknown function is given."""
        scope = _later_run_function_id_of_event(event)
        for argument in (*event.args, *event.keywords.values()):
            for tracked in self._objects_that_may_be_same(scope, key_of_object(argument)):
                tracked.forget()

    def _move(self, tracked: TrackedObject, occurrence: Occurrence) -> None:
        """Move the paths of an object, and note what is broken on them."""
        moved: list[Path] = []
        for path in tracked.paths:
            if not _leads_to(path, occurrence.event):
                moved.append(path)
                continue
            self._note_broken(path, occurrence)
            following = self._next_path(path, occurrence)
            moved.append(following)
            if following is not path and _may_be_left_out(path, occurrence.event):
                moved.append(replace(path, is_uncertain=True))
        unique = list(dict.fromkeys(moved))
        tracked.paths = unique if len(unique) <= MAX_PATHS else [Path(UNKNOWN_STATE)]

    def _next_path(self, path: Path, occurrence: Occurrence) -> Path:
        """The path after an action; the same one where the action changes nothing in its state."""
        transition = _transition(self._protocol, path.state, occurrence.action.name)
        if transition is None:
            return path
        step = Step(occurrence, transition.to)
        return Path(transition.to, (*path.trail, step)[-MAX_TRAIL:])

    def _note_broken(self, path: Path, occurrence: Occurrence) -> None:
        """Note the orders that an action breaks at the end of a path."""
        if path.is_uncertain or not path.trail:
            return
        for order in self._protocol.broken_orders:
            is_named = order.state == path.state and order.action == occurrence.action.name
            if is_named and _are_further_conditions_of_order_met(order, path, occurrence):
                place = _both_places_of_broken_order(self._protocol, order, path, occurrence)
                if place is not None:
                    self._places.append(place)


def _may_release_run_file(module: Module, order: BrokenOrder) -> bool:
    """May a release run the file for which an order is broken?"""
    return order.releases is None or order.releases.may_run(module.pins)


def key_of_object(value: Value) -> ObjectKey:
    """What tells an object from others, however it is wrapped; a copy is an object of its own."""
    found: set[int] = set()
    for way in ways_to_objects(value):
        copies = [step.result for step in way.steps if step.named(*COPIES)]
        found.add(id(copies[0] if copies else way.origin))
    return frozenset(found)


def _actions_called(
    protocol: Protocol, names: tuple[str, ...], method: str | None
) -> tuple[Action, ...]:
    """The actions of a protocol that a call may be, by what is called."""
    return tuple(
        action
        for action in protocol.actions
        if method in action.methods
        or any(fnmatchcase(one, sign) for one in names for sign in action.functions)
    )


def _is_known_call(event: CallEvent) -> bool:
    """Is it a call of a library that is known, or of a method of an object?"""
    if not event.names:
        return event.method is not None
    roots = {name.partition(".")[0] for name in event.names}
    return all(root in KNOWN_LIBRARIES or "." not in name for root in roots for name in event.names)


def _later_run_function_id_of_event(event: Event) -> int:
    """The identity of the function that a library runs later and that an event is in; 0 for the script.

    Such a function runs at a time that the run does not show, so its events have states of their own.
    """
    for frame in event.frames("callback"):
        if not _runs_at_once(frame):
            return id(frame)
    return 0


def _runs_at_once(frame: Frame) -> bool:
    """Does the call that was handed a function run it at once?"""
    call = frame.given_to
    if call is None:
        return False
    last_names = {name.rpartition(".")[2] for name in call.names}
    return call.method in EAGER_METHODS or not last_names.isdisjoint(EAGER_METHODS)


def _transition(protocol: Protocol, state: str, action: str) -> Transition | None:
    """The transition of an action in a state; None where it changes nothing."""
    for one in protocol.transitions:
        if one.action == action and (not one.sources or state in one.sources):
            return one
    return None


def _leads_to(path: Path, event: Event | None) -> bool:
    """Can a run that took a path reach an event?"""
    if event is None:
        return True
    return all(
        step.occurrence.event is None or can_follow(step.occurrence.event, event)
        for step in path.trail
    )


def _may_be_left_out(path: Path, event: Event | None) -> bool:
    """May a run that took a path leave an event out, for it is in a branch?"""
    if event is None:
        return False
    latest = path.trail[-1].occurrence.event if path.trail else None
    shared = set() if latest is None else {id(frame.node) for frame in latest.frames()}
    return any(id(one.node) not in shared for one in event.frames("branch", "try", "except"))


def _are_further_conditions_of_order_met(
    order: BrokenOrder, path: Path, occurrence: Occurrence
) -> bool:
    """Are the further conditions of a broken order met?"""
    latest = path.trail[-1].occurrence.event
    event = occurrence.event
    if order.comes_around:
        return event is not None and event.node in _nodes_of_trail(path)
    if order.in_each_pass and (event is None or is_done_in_some_passes(event)):
        return False
    if order.in_one_pass:
        return event is not None and latest is not None and _share_loop(latest, event)
    if order.reads_old_value:
        return _reads_value_from_before(occurrence, latest)
    return True


def _nodes_of_trail(path: Path) -> set[ast.AST]:
    """The code of the actions that led to the state of a path."""
    events = (step.occurrence.event for step in path.trail)
    return {event.node for event in events if event}


def _reads_value_from_before(occurrence: Occurrence, latest: Event | None) -> bool:
    """Was the value that an action is given computed before the latest action?"""
    read_at = occurrence.read_at
    return read_at is not None and latest is not None and read_at < latest.number


def _share_loop(earlier: Event, later: Event) -> bool:
    """Is the innermost loop around the earlier event also around the later one, in the same pass?"""
    loop = next(earlier.frames("loop"), None)
    return loop is not None and any(frame is loop for frame in later.frames("loop"))


def _both_places_of_broken_order(
    protocol: Protocol, order: BrokenOrder, path: Path, occurrence: Occurrence
) -> BrokenPlace | None:
    """The two places of a broken order; None where one of them is not known."""
    events = [step.occurrence.event for step in path.trail]
    if not order.shows_past or len(events) < 2:
        events.append(occurrence.event)
    first, second = events[-2:]
    if first is None or second is None:
        return None
    return BrokenPlace(protocol, order, first, second)
