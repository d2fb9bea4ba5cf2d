"""The table of the injector: each function of the hook, each fault, and what became of the run."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tests.auditing.running import environment
from tests.probe.injection.functions import Function
from truetune.auditing.run_with_hook import open_hook_session
from truetune.checks.judge_audit import audit
from truetune.checks.judge_rollouts import judge_recorded_rollouts
from truetune.demo import TOKENIZER
from truetune.probe.orders_from_launcher_to_hook import HookOrders
from truetune.probe.run_record import Record

TIMES = re.compile(
    r"('(?:step_time|train_(?:runtime|samples_per_second|steps_per_second))':) '[^']*'"
)
TRAINED = 3
"""The exit code of a subject that was trained"""
SECONDS = 2.0
"""The clock of an audit in which a fault hangs, and of the parent's verdict"""
HEALTHY_SECONDS = 60.0
CANARY = (
    "truetune.probe.trace_canary_row_through_trainer",
    "truetune.probe.mark_row_texts_with_unique_strings",
    "truetune.probe.follow_canary_through_maps",
)
OWN_LOOP = (
    "truetune.probe.own_loop_hook",
    "truetune.probe.count_optimizer_steps_in_own_loop",
    "truetune.probe.detect_gradients_cleared_before_step",
    "truetune.probe.live_objects",
    "truetune.probe.record_hand_written_training_loop",
)
PREFERENCES = (
    "truetune.probe.measuring.preference_ratios",
    "truetune.probe.laws.dpo_start",
    "truetune.probe.laws.precomputed_reference",
    "truetune.probe.laws.reference_dropout",
    "truetune.probe.laws.reference_still",
)


ROLLOUTS = (
    "truetune.probe.record_rollouts_of_trl_trainer",
    "truetune.probe.rollout_hook",
    "truetune.probe.rollout_step",
)


class Seen(NamedTuple):
    """What a user sees of a run."""

    code: int
    stdout: str
    stderr: str


@dataclass(frozen=True)
class Outcome:
    function: Function | None
    fault: str
    reached: bool
    """Did the function run?"""
    told: tuple[str, ...]
    """Lines of truetune on stderr"""
    judged: bool
    same: bool
    """Were exit code, log, weights, stdout and stderr those of the run alone?"""
    seen: Seen


class Injector:
    """Subjects, one after the other."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        command = [sys.executable, "-m", "tests.probe.injection.subject", str(TOKENIZER)]
        self.server = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            env=environment(),
        )  # fmt: skip
        self.alone: dict[str, Seen] = {}
        self.live_alone("plain")

    def live_alone(self, kind: str) -> Seen:
        """A run without the hook."""
        self.alone[kind] = self._live(None, None, "", "", kind)
        if self.alone[kind].code != TRAINED:
            raise RuntimeError(f"the run alone fails: {self.alone[kind]}")
        return self.alone[kind]

    def close(self) -> None:
        assert self.server.stdin is not None
        self.server.stdin.close()
        self.server.wait(30)

    def inject(
        self,
        function: Function | None,
        fault: str,
        laws: Sequence[str] = (),
        *,
        in_place: bool = False,
        kind: str = "plain",
        canary: bool = False,
    ) -> Outcome:
        """A run with the hook, in which this function has this fault.

        With `in_place` the audit is made in the process itself, as where a device is in use, not in a forked copy.
        `kind` is the trainer's (`subject.KINDS`); with `canary` a marked row is followed.
        """
        told: list[str] = []
        judged: list[bool] = []

        def judge(records: Sequence[Record]) -> bool:
            has_rollouts = any(record.rollouts for record in records)
            judge_records = judge_recorded_rollouts if has_rollouts else audit
            judged.append(bool(judge_records(records)))
            return True

        reached = self.folder / "reached"
        reached.unlink(missing_ok=True)
        seconds = SECONDS if fault in ("hang", "spin") else HEALTHY_SECONDS
        orders: HookOrders = {
            "mode": "audit",
            "batches": 2,
            "laws": list(laws),
            "canary": canary,
            "seconds": seconds,
            "verdict_seconds": seconds,
            "in_place": in_place,
        }
        with open_hook_session(orders, judge, told.append) as session:
            seen = self._live(session.orders, function, fault, str(reached), kind)
        name = f"{fault}, in place" if in_place else fault
        alone = self.alone[kind] if kind in self.alone else self.live_alone(kind)
        same = seen == alone and len(told) <= 1
        return Outcome(function, name, reached.exists(), tuple(told), bool(judged), same, seen)

    def _live(
        self,
        orders: HookOrders | None,
        function: Function | None,
        fault: str,
        reached: str,
        kind: str,
    ) -> Seen:
        names = {name: str(self.folder / name) for name in ("stdout", "stderr", "out")}
        order = {
            "orders": orders,
            "function": function,
            "fault": fault,
            "reached": reached,
            "kind": kind,
            **names,
        }
        assert self.server.stdin is not None
        assert self.server.stdout is not None
        self.server.stdin.write(json.dumps(order) + "\n")
        self.server.stdin.flush()
        code = int(self.server.stdout.readline())
        stdout, stderr = (Path(names[name]).read_text() for name in ("stdout", "stderr"))
        return Seen(code, TIMES.sub(r"\1 ...", stdout), stderr)


@contextmanager
def injector(folder: Path) -> Iterator[Injector]:
    """A server of subjects, and the run alone."""
    made = Injector(folder)
    try:
        yield made
    finally:
        made.close()


def kind_for(function: Function) -> str:
    """The kind of run that reaches a function (`subject.KINDS`)."""
    if follows_canary(function):
        return "mapped"
    if function.module in OWN_LOOP:
        return "own loop"
    if function.module in ROLLOUTS:
        return "rollouts"
    return "preferences" if function.module in PREFERENCES else "plain"


def follows_canary(function: Function) -> bool:
    """Is a function of the code that sends a marked row through the run's preparation?"""
    return function.module in CANARY


def laws_for(function: Function) -> tuple[str, ...]:
    """Laws that reach a function of theirs."""
    home, _, name = function.module.rpartition(".")
    if home.endswith("probe.laws"):
        return (name.replace("_", "-"),)
    helpers = {
        "compute_logits": ("padding-invariance", "cache"),
        "trainer_gradients": ("gradient-accumulation", "loss-alive"),
        "learned_targets": ("loss-targets",),
        "packed_documents": ("packing-isolation", "padding-invariance"),
        "rounding_tolerance": ("padding-invariance", "checkpointing"),
        "preference_ratios": ("dpo-start",),
        "require_row_independence": ("gradient-accumulation",),
    }
    return helpers.get(name, ("loss-alive",))
