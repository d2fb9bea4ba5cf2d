"""The hook of `truetune run` for trainers that sample their answers: their first rollouts are recorded and judged.

Such a trainer's data loader holds prompts alone, so what is learned can't be looked at before the run begins. Its
rollouts are noted as they are made (`record_rollouts_of_trl_trainer`). After the last micro-batch that is wanted, the
record is handed to the parent, which answers GO or STOP as for any audit.

The trade-off: the first step of the optimizer may be taken before anything is judged. In return nothing is sampled
twice, and no reward function is called for our sake.
"""

from __future__ import annotations

import atexit
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from truetune.probe.audit_session import (
    RunMessage,
    TrainerRun,
    await_verdict,
    build_run_message_for_parent,
)
from truetune.probe.audit_time_limits_and_replies import GO, STOP, Limits
from truetune.probe.choose_rollout_recorder import (
    are_rollouts_recorded,
    make_rollout_recorder,
)
from truetune.probe.contain_own_failures_in_user_program import (
    describe_error,
    note_reason_of_missing_audit,
)
from truetune.probe.rollout_step import write_rollout_files
from truetune.probe.run_record import Record, write_record_files

if TYPE_CHECKING:
    from truetune.probe.orders_from_launcher_to_hook import HookOrders


def watch_rollouts(trainer: Any, orders: HookOrders, number: int) -> None:
    """Begin to note the rollouts of a trainer that is about to train; nothing where it has none.

    Args:
        trainer: a trainer of transformers.
        orders: what the hook is to do.
        number: of this audit among those of the process.
    """
    if not are_rollouts_recorded(trainer):
        return
    RolloutWatch(trainer, orders, number).start()


class RolloutWatch:
    """The rollouts of one trainer between their first note and the parent's verdict."""

    def __init__(self, trainer: Any, orders: HookOrders, number: int) -> None:
        self._orders = orders
        self._process = os.getpid()
        self._facts = _facts_of_run(trainer)
        message = build_run_message_for_parent(
            TrainerRun(trainer, None, None),
            Path(orders["folder"], f"{os.getpid()}-{number}-rollouts"),
            number,
            os.getpid(),
            os.getppid(),
        )
        self._message: RunMessage = {**message, "group": ["rollouts", *message["group"]]}
        self._tokenizer = trainer.processing_class
        self._is_told = False
        limits = Limits.of(orders)
        self._recorder = make_rollout_recorder(
            trainer,
            int(orders["batches"]),
            lose=self.lose,
            complete=self.hand_over,
            seconds=float(limits.step),
            seconds_of_complete=float(limits.verdict + limits.step),
        )

    def start(self) -> None:
        """Begin to note, and say so: a run that ends without a verdict was not judged."""
        # A training that is shorter than what is wanted is judged when Python ends.
        atexit.register(self.hand_over_at_exit)
        try:
            self._recorder.start()
        except BaseException:
            # What stands before some methods already must not stay there.
            self._recorder.stop()
            raise
        with suppress(OSError):  # the parent has gone
            Path(self._orders["folder"], f"rollouts-{os.getpid()}").touch()

    def hand_over(self) -> str:
        """Write the record, tell the parent, and bring its verdict: GO or STOP."""
        # Here, since it loads torch and all laws.
        from truetune.probe.record_run_ready_to_train import save_tokenizer

        steps = self._recorder.take()
        self._is_told = True
        # Else the tokenizer, and what was noted, would live as long as the process.
        atexit.unregister(self.hand_over_at_exit)
        folder = Path(self._message["folder"])
        folder.mkdir()
        save_tokenizer(self._tokenizer, folder)
        # First the rollouts: a folder with a record is whole.
        write_rollout_files(steps, folder)
        write_record_files(Record(self._facts), folder)
        return STOP if await_verdict(self._message, self._orders) == STOP else GO

    def hand_over_at_exit(self) -> None:
        """Hand over what was noted of a training that ended early. Python is ending: no clock can be started."""
        if self._is_told or os.getpid() != self._process:
            return
        try:
            if self._recorder.steps:
                self.hand_over()
        except BaseException as error:
            self.lose(describe_error(error))

    def lose(self, reason: str) -> None:
        """Lose the rollouts: leave the reason for the parent to say. Other processes of the run must not wait."""
        note_reason_of_missing_audit(f"the rollouts can't be recorded: {reason}", self._orders)
        if not self._is_told:
            self._is_told = True
            await_verdict({**self._message, "failed": reason}, self._orders, 0.0)


def _facts_of_run(trainer: Any) -> dict[str, Any]:
    """The facts of a record that holds rollouts alone."""
    kind = type(trainer)
    return {
        "rank": int(trainer.args.process_index),
        "world": int(trainer.args.world_size),
        "trainer": {"class": f"{kind.__module__}.{kind.__qualname__}"},
        "batches": [],
        "notes": [],
    }
