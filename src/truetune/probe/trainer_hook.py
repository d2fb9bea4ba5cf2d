"""The hook of `truetune run`: waits inside the user's process for a transformers.Trainer that is about to train.

Two things of transformers are replaced: `Trainer.__new__`, to learn which data set a trainer is given before it
prepares it, and `CallbackHandler.on_train_begin`, which is called when all is ready. Both do their own work inside
`truetune.probe.contain_own_failures_in_user_program.run_contained`, and look at the run in a forked copy of the
process where that can be made.

Trade-off: patching two names of transformers depends on its internals, where a callback would be a public interface.
But a callback must be added by the user's code, and learns neither the data as they were given nor whether it is
called before those that change the model.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from truetune.probe.audit_time_limits_and_replies import STOP, Limits
from truetune.probe.contain_own_failures_in_user_program import (
    Lost,
    note_reason_of_missing_audit,
    run_contained,
)
from truetune.probe.find_trainers_and_their_datasets import (
    MadeTrainers,
    NewTrainer,
    innermost_trainer_on_stack,
)
from truetune.probe.forked_process import can_fork
from truetune.probe.own_loop_hook import watch_optimizers_once_torch_imported

if TYPE_CHECKING:
    from truetune.probe.orders_from_launcher_to_hook import HookOrders

CallAfterImport = Callable[..., Any]
"""(name of a module, function, its arguments): it is called when the module has been imported"""


def wait_for_trainer_after_package_import(
    package: str, orders: HookOrders, after: CallAfterImport
) -> None:
    """Begin to wait, now that a package of the run has been imported.

    Args:
        package: `datasets` or `transformers`.
        orders: what the hook is to do, as its launcher wrote them (`truetune.auditing.run_with_hook`).
        after: calls a function when another module has been imported.
    """
    if package == "datasets":
        from truetune.probe.follow_canary_through_maps import follow_datasets

        follow_datasets()
    if package == "transformers":
        watch_optimizers_once_torch_imported(orders, after)
        # transformers imports its modules when they are first used, so the trainer's may come much later or never.
        trainer = "transformers.trainer"
        if trainer in sys.modules:
            patch_trainer(orders)
        else:
            # A partial, so that between the program and the boundary there is no function of ours that could fail.
            after(
                trainer,
                partial(
                    run_contained,
                    patch_trainer,
                    orders,
                    on_failure=partial(note_reason_of_missing_audit, orders=orders),
                ),
            )


def patch_trainer(orders: HookOrders) -> None:
    """Patch the Trainer: each class of trainer is looked at once, before the first of its callbacks learns
    that training begins.

    Raises:
        Lost: where the replacement for `Trainer.__new__` could not be made; nothing is replaced then.
    """
    trainer: Any = sys.modules["transformers.trainer"].Trainer
    handlers: Any = sys.modules["transformers.trainer_callback"].CallbackHandler
    former = handlers.on_train_begin
    # All that the entry points use is made and looked at here, where a failure is contained.
    hook, limits = TrainerHook(orders), Limits.of(orders)
    find, audit, lose = hook.find, hook.audit, hook.note_lost_audit_and_switch_off
    step, whole = float(limits.step), float(limits.whole)
    note = partial(run_contained, hook.made.note, on_failure=lose, seconds=step)
    new = NewTrainer(trainer, note)
    if new.trainer is not trainer or new.note is not note:
        raise Lost("the hook for new trainers was not made")

    @wraps(former)
    def on_train_begin(handler: Any, *args: Any, **kwargs: Any) -> Any:
        ready = run_contained(find, handler, on_failure=lose, seconds=step)
        # By identity: whatever else comes back here is no verdict.
        if (
            ready is not None
            and run_contained(audit, ready, on_failure=lose, seconds=whole) is STOP
        ):
            raise SystemExit(1)
        try:
            return former(handler, *args, **kwargs)
        except BaseException as error:
            # This frame is taken out of the traceback: what the program prints must be what it prints without us
            # (tests/probe/injection compares stderr to the letter).
            error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next
            raise

    trainer.__new__ = new
    handlers.on_train_begin = on_train_begin
    # Says that a process waits: a run that ends with none of these files had no trainer at all.
    with suppress(OSError):  # the parent has gone
        Path(orders["folder"], f"waiting-{os.getpid()}").touch()


class ReadyTrainer(NamedTuple):
    """A trainer that is about to train."""

    trainer: Any
    loader: Any
    source: Any
    """The data set that its outermost class was given, before any preparation; None where it is not known"""
    number: int
    """Of this audit among those of the process, from 1"""


class TrainerHook:
    """What the hook knows of this process. Its first failure switches it off."""

    def __init__(self, orders: HookOrders) -> None:
        """`orders` are the launcher's."""
        self.orders = orders
        self.made = MadeTrainers()
        self.audited: set[str] = set()
        """Names of the classes that were looked at"""
        self.off = False

    def note_lost_audit_and_switch_off(self, reason: str) -> None:
        """Lose the audit: switch the hook off, and leave the reason for the parent to say."""
        self.off = True
        note_reason_of_missing_audit(reason, self.orders)

    def find(self, handler: Any) -> ReadyTrainer | None:
        """Find the trainer of a callback handler; None where there is none, or one of its class was looked at."""
        if self.off:
            return None
        trainer = self.made.trainer_of_callback_handler(handler)
        if trainer is None:
            # A trainer that was made before the hook, or by `copy` or `pickle`, never went through `__new__`. The one
            # that calls its handler now stands in a frame below this one: `innermost_trainer_on_stack` says how it is
            # known.
            trainer = innermost_trainer_on_stack()
        if trainer is None:
            return None
        # By `type.__getattribute__`: the class may have a metaclass of the user's, whose attributes may raise
        # (`test_trainers_of_odd_classes_are_judged`, kind "metaclass").
        parts = ("__module__", "__qualname__")
        name = ".".join(type.__getattribute__(type(trainer), part) for part in parts)
        # Once a class, so that a search over hyperparameters is not audited at each of its trials.
        if name in self.audited:
            return None
        self.audited.add(name)
        return ReadyTrainer(
            trainer, handler.train_dataloader, self.made.take_dataset(trainer), len(self.audited)
        )

    def audit(self, ready: ReadyTrainer) -> str:
        """Audit the run, in a copy of the process where that works: its verdict, GO or STOP. Raises whatever goes
        wrong."""
        # Here, since it is needed once a run, and a program that never trains does not pay for it.
        from truetune.probe.audit_session import TrainerRun, audit_in_copy, audit_in_place
        from truetune.probe.rollout_hook import watch_rollouts

        in_place = self.orders.get("in_place") or not can_fork()
        audit = audit_in_place if in_place else audit_in_copy
        subject = TrainerRun(ready.trainer, ready.loader, ready.source)
        verdict = audit(subject, self.orders, ready.number, Limits.of(self.orders))
        if verdict != STOP:
            watch_rollouts(ready.trainer, self.orders, ready.number)
        return verdict
