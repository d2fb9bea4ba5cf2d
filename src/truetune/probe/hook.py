"""The hook of `truetune run`: waits inside the user's process for a transformers.Trainer that is about to train.

Two things of transformers are replaced: `Trainer.__new__`, to learn which data set a trainer is given before it
prepares it, and `CallbackHandler.on_train_begin`, which is called when all is ready. Both do their own work inside
`truetune.probe.boundary.contain`, and look at the run in a forked copy of the process where that can be made.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial, wraps
from pathlib import Path
from typing import Any, NamedTuple

from truetune.probe.boundary import contain, note_loss
from truetune.probe.forked import can_fork
from truetune.probe.limits import STOP, Limits
from truetune.probe.trainers import MadeTrainers, NewTrainer, trainer_of_frames

After = Callable[..., Any]
"""(name of a module, function, its arguments): it is called when the module has been imported"""


def begin(package: str, orders: dict[str, Any], after: After) -> None:
    """This package has been imported; `after` calls when another has been."""
    if package == "datasets":
        from truetune.probe.twins import install as follow

        follow()
    if package == "transformers":
        trainer = "transformers.trainer"
        if trainer in sys.modules:
            patch(orders)
        else:
            after(trainer, contain_patch, orders)


def contain_patch(orders: dict[str, Any]) -> None:
    """`patch`, when transformers' trainer has been imported. Raises nothing of ours."""
    contain(patch, orders, on_failure=partial(note_loss, orders=orders))


def patch(orders: dict[str, Any]) -> None:
    """Look at each class of trainer once, before the first of its callbacks learns that training begins."""
    hook = Hook(orders)
    trainer: Any = sys.modules["transformers.trainer"].Trainer
    handlers: Any = sys.modules["transformers.trainer_callback"].CallbackHandler
    former = handlers.on_train_begin

    @wraps(former)
    def on_train_begin(handler: Any, *args: Any, **kwargs: Any) -> Any:
        if hook.audits_and_stops(handler):
            raise SystemExit(1)
        try:
            return former(handler, *args, **kwargs)
        except BaseException as error:
            error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next  # as if this had not been here
            raise

    trainer.__new__ = NewTrainer(trainer, hook.note_trainer)
    handlers.on_train_begin = on_train_begin
    with suppress(OSError):  # the parent has gone
        Path(orders["folder"], f"waiting-{os.getpid()}").touch()


class Reached(NamedTuple):
    """A trainer that is about to train."""

    trainer: Any
    loader: Any
    given: Any
    """The data set that its outermost class was given"""
    number: int
    """Of this audit among those of the process, from 1"""


class Hook:
    """What the hook knows of this process. Its first failure switches it off."""

    def __init__(self, orders: dict[str, Any]) -> None:
        self.orders = orders
        self.made = MadeTrainers()
        self.audited: set[str] = set()
        """Names of the classes that were looked at"""
        self.off = False
        self.limits = Limits.of(orders)

    def note_trainer(self, *made: Any) -> None:
        """A trainer is being made. Raises nothing of ours."""
        if not self.off:
            contain(self.made.note, *made, on_failure=self.lose, seconds=self.limits.step)

    def audits_and_stops(self, handler: Any) -> bool:
        """Look at the trainer of this callback handler; is its run to end here? Raises nothing of ours."""
        if self.off:
            return False
        reached = contain(self.find, handler, on_failure=self.lose, seconds=self.limits.step)
        if reached is None:
            return False
        # By identity: whatever else comes back here is no verdict.
        return contain(self.audit, reached, on_failure=self.lose, seconds=self.limits.whole) is STOP

    def lose(self, reason: str) -> None:
        """There is no audit; the parent says why."""
        self.off = True
        note_loss(reason, self.orders)

    def find(self, handler: Any) -> Reached | None:
        """The trainer of a callback handler; None where there is none, or one of its class was looked at."""
        trainer = self.made.of_handler(handler)
        if trainer is None:
            trainer = trainer_of_frames()
        if trainer is None:
            return None
        kind = type(trainer)  # its metaclass, the user's too, is not asked
        name = ".".join(type.__getattribute__(kind, part) for part in ("__module__", "__qualname__"))
        if name in self.audited:
            return None
        self.audited.add(name)
        return Reached(trainer, handler.train_dataloader, self.made.take_dataset(trainer), len(self.audited))

    def audit(self, reached: Reached) -> str:
        """GO or STOP. Raises whatever goes wrong."""
        from truetune.probe.session import audit_in_copy, audit_in_place

        in_place = self.orders.get("in_place") or not can_fork()
        audit = audit_in_place if in_place else audit_in_copy
        return audit(reached.trainer, reached.loader, reached.given, self.orders, reached.number, self.limits)
