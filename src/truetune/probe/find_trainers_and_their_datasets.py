"""Finds the trainers of this process: which one is training, and the data set that each was given.

Trainers are the user's objects: their classes may define `__eq__`, `__hash__`, `__bool__` or `__getattr__` as they
like, and those may raise. So a trainer is known here by its identity, is held by a weak reference, and its type is
asked for by `type`, never by `isinstance`.
"""

from __future__ import annotations

import inspect
import sys
import types
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

Note = Callable[[Any, Any, tuple[Any, ...], dict[str, Any]], Any]


class MadeTrainer(NamedTuple):
    """A trainer that was made, and the data set that its outermost class was given."""

    trainer: weakref.ref[Any]
    dataset: Any


class MadeTrainers:
    """All trainers that live, by their identity."""

    def __init__(self) -> None:
        self._made: dict[int, MadeTrainer] = {}

    def note(
        self, trainer: Any, kind: Any, arguments: tuple[Any, ...], named: dict[str, Any]
    ) -> None:
        """Remember a new trainer and its `train_dataset`, before any preparation. Raises TypeError where it is of a
        class that allows no weak reference."""
        key = id(trainer)
        # A partial of dict.pop: nothing of ours runs when the trainer dies, so nothing of ours can fail there.
        reference = weakref.ref(trainer, partial(dict.pop, self._made, key))
        dataset = named.get("train_dataset")
        if "train_dataset" not in named and arguments:
            dataset = _positional_dataset(kind, trainer, arguments, named)
        self._made[key] = MadeTrainer(reference, dataset)

    def take_dataset(self, trainer: Any) -> Any:
        """The data set that this trainer was given; it is forgotten then. None where none is known."""
        entry = self._made.pop(id(trainer), None)
        return entry.dataset if entry is not None and entry.trainer() is trainer else None

    def trainer_of_callback_handler(self, handler: Any) -> Any:
        """The trainer whose callback handler this is; None where it is none of those known."""
        for entry in list(self._made.values()):
            trainer = entry.trainer()
            if (
                trainer is not None
                and _instance_attributes(trainer).get("callback_handler") is handler
            ):
                return trainer
        return None


def _positional_dataset(
    kind: Any, trainer: Any, arguments: tuple[Any, ...], named: dict[str, Any]
) -> Any:
    """The `train_dataset` among the positional arguments of a constructor; None where the call does not fit it."""
    try:
        bound = inspect.signature(kind.__init__).bind_partial(trainer, *arguments, **named)
    except (TypeError, ValueError):  # a call that fails by itself in a moment
        return None
    return bound.arguments.get("train_dataset")


def _instance_attributes(trainer: Any) -> dict[str, Any]:
    """The `__dict__` of a trainer; empty where its class has only slots."""
    try:
        # Past any `__getattribute__` of the class, which is the user's and may raise.
        attributes: dict[str, Any] = object.__getattribute__(trainer, "__dict__")
    except AttributeError:  # its class has only slots
        return {}
    return attributes


class NewTrainer:
    """A `__new__` for the Trainer class that shows each new trainer, and what it is given, to `note`.

    Around `__init__` it would stand in tracebacks and warnings. `inspect.signature(SomeTrainer)` passes it by, as it
    does object.__new__, by which some trainers are configured. `note` must not raise.
    """

    # `inspect.signature(SomeTrainer)` reads `__new__` before `__init__`, unless it is a builtin. Programs that choose a
    # trainer's arguments by its signature would find `*args, **kwargs` here instead of the names in `__init__`
    # (tests/probe/test_trainer_hook.py compares the signatures before and after).
    __class__ = types.BuiltinFunctionType  # type: ignore[assignment]

    def __init__(self, trainer: Any, note: Note) -> None:
        self.trainer, self.note = trainer, note

    def __call__(self, kind: Any, /, *args: Any, **kwargs: Any) -> Any:
        # As Python itself would look it up without us: behind Trainer, in the order of the new class's bases.
        following = super(self.trainer, kind).__new__
        if following is object.__new__ and kind.__new__ is self:
            instance = following(
                kind
            )  # the arguments are for __init__, as object.__new__ sees for itself otherwise
        else:
            instance = following(
                kind, *args, **kwargs
            )  # of a base behind Trainer, or below a __new__ of the user's own
        self.note(instance, kind, args, kwargs)
        return instance


def innermost_trainer_on_stack() -> Any:
    """The innermost trainer in whose methods we are; None where there is none.

    A frame's locals live on in a dictionary once they were asked for (before Python 3.13), so this is for a forked
    copy, a rehearsal, or a callback of the user's own.
    """
    # A callback handler does not know its trainer, and no registry of trainers exists. The trainer that is about to
    # train stands as `self` in a frame below this one: its `train` has called the handler. Without the walk a trainer
    # that was unpickled or copied is not audited.
    kind, frame = sys.modules["transformers.trainer"].Trainer, inspect.currentframe()
    while frame is not None:
        candidate = frame.f_locals.get("self") if "self" in frame.f_code.co_varnames else None
        if candidate is not None and issubclass(type(candidate), kind):
            return candidate
        frame = frame.f_back
    return None
