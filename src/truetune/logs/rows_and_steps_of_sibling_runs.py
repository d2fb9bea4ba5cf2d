"""Measures how many rows a run saw in how many optimizer steps, and the same of the runs in folders
beside it.

A run that was repeated on more GPUs stands in a folder beside the first one. Each state alone is healthy; what differs
is how many optimizer steps the same rows made, and that only the two together tell.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from truetune.errors import DataError
from truetune.logs.read_jsonl_csv_json_logs import add_trainer_state, load_log_json
from truetune.logs.refuse_folder_of_several_runs import STATE_FILE
from truetune.logs.run_log import Floats, RunLog
from truetune.logs.run_log_builder import RunLogBuilder

MAX_RUNS = 20
"""Folders beside a run that are looked into. Chosen, not measured: it bounds the time on a folder of many runs"""
STATE_NAME = "trainer_state"
MAX_STATE_BYTES = 1 << 25
"""A larger state is left out: that of 100,000 records has about this size"""

WHOLE_EPOCHS = 0.02
"""Of an epoch, that whole ones may be off: logs have few digits"""


RATE_ROUNDING = 5e-4
"""Relative error of a rate that is printed with three decimals, from one row a second on"""


@dataclass(frozen=True, slots=True)
class RunSize:
    """What a run did, as far as two runs can be compared by it."""

    name: str
    """Its folder"""
    steps: int
    """Optimizer steps"""
    rows: float
    """Rows that it saw, each as often as it was seen; 0 where the log does not say it"""
    peak_rate: float
    loss: float
    """At the end: that of the evaluation where there is one, else the mean of the last records"""
    is_evaluated: bool
    is_warming_up: bool = False
    """Its rate still rises at the last step: the rate that was set is higher than its peak"""

    epochs: float = 0.0
    """0 where the log does not say them"""
    flos: float = 0.0
    """Operations that the Trainer counts over all processes: as many for as many rows. 0 where it does not"""

    @property
    def rows_a_step(self) -> float:
        """Mean rows of an optimizer step, over all processes."""
        return self.rows / self.steps

    @property
    def rows_per_full_step_as_text(self) -> str:
        """Rows of a full step as text: `16`, or `100 to 149` if the last step of an epoch may be
        short.
        """
        return rows_per_full_step_as_text(self.rows, self.steps, self.epochs)


def rows_per_full_step_as_text(rows: float, steps: float, epochs: float) -> str:
    """The rows of a full step as text, by the rows of an epoch and its steps.

    The last step of an epoch holds what is left over: 300 rows in 3 steps are steps of 100 to 149.
    """
    whole = round(epochs)
    if whole < 1 or abs(epochs - whole) > WHOLE_EPOCHS or steps % whole:
        return f"about {rows / steps:,.3g}"
    rows_of_epoch, steps_of_epoch = round(rows / whole), int(steps) // whole
    # A rate of 2.259 rows a second is off by so much: 12,001 rows in 375 steps are steps of 32, and not of 33.
    least = math.ceil(rows_of_epoch * (1 - RATE_ROUNDING) / steps_of_epoch)
    if steps_of_epoch == 1:
        return f"{least:,} or more"
    most = math.ceil(rows_of_epoch / (steps_of_epoch - 1)) - 1
    return f"{least:,}" if most <= least else f"{least:,} to {most:,}"


def count_rows_seen(log: RunLog) -> float | None:
    """The number of rows that a run saw, by the Trainer's own figures at its end; None if they are
    not in the log.
    """
    speed, seconds = (
        log.fact_as_number("train_samples_per_second"),
        log.fact_as_number("train_runtime"),
    )
    return speed * seconds if speed and seconds else None


def size_of_finished_run(log: RunLog, name: str) -> RunSize | None:
    """The size of a run that ended; None where its log has neither rows nor operations, no rate or no loss."""
    rows, steps = count_rows_seen(log) or 0.0, int(log.done_steps)
    flos = _flos_of_finished_run(log)
    rate = log.curve("learning_rate").finite()
    evaluated, loss = log.curve("eval_loss").finite(), log.curve("loss").finite()
    is_measured = bool(rows or flos) and bool(evaluated or loss)
    if not is_measured or not steps or not rate:
        return None
    # A single record is noisy: the mean of the last tenth is compared.
    tail = max(1, loss.value.size // 10)
    last = float(evaluated.value[-1]) if evaluated else float(loss.value[-tail:].mean())
    return RunSize(
        name,
        steps,
        rows,
        float(rate.value.max()),
        last,
        is_evaluated=bool(evaluated),
        is_warming_up=_ends_at_its_peak(rate.value),
        epochs=log.epochs_at_end,
        flos=flos,
    )


def _ends_at_its_peak(rates: Floats) -> bool:
    """Does a learning rate still rise at the end?"""
    return rates.size > 1 and float(rates[-1]) == float(rates.max()) > float(rates[-2])


def _flos_of_finished_run(log: RunLog) -> float:
    """Operations of a run that made all planned steps, over epochs that are known; otherwise 0. The
    state that a run left on its way has fewer than the whole.

    A state that a run left on its way has fewer than the whole.
    """
    has_ended = log.planned_steps is not None and log.last_step >= log.planned_steps
    return (log.fact_as_number("total_flos") or 0.0) if has_ended and log.epochs_at_end else 0.0


def find_sibling_runs(log: RunLog) -> tuple[RunSize, ...]:
    """The ended runs of the Trainer beside a run, by name: in other folders, or states of other
    names in its own.
    """
    own = Path(log.path)
    if own.is_file() and own.name != STATE_FILE:
        return _runs_of_state_copies_beside_own(own)
    own = own.parent if own.is_file() else own
    # without a state it may be any folder, such as a home with many runs of other people in it
    if not (own / STATE_FILE).is_file():
        return ()
    states = sorted(path for path in own.resolve().parent.glob(f"*/{STATE_FILE}") if path.is_file())
    others = [path for path in states[:MAX_RUNS] if path.parent != own.resolve()]
    sizes = [_run_size_from_state(path, path.parent.name) for path in others]
    return tuple(size for size in sizes if size is not None)


def _runs_of_state_copies_beside_own(own: Path) -> tuple[RunSize, ...]:
    """The runs whose states were copied beside this one: `trainer_state_1gpu.json`, `8gpu.trainer_state.json`."""
    if STATE_NAME not in own.name:
        return ()
    states = sorted(path for path in own.parent.glob(f"*{STATE_NAME}*.json") if path.is_file())
    others = [path for path in states[:MAX_RUNS] if path.name != own.name]
    sizes = [_run_size_from_state(path, path.name) for path in others]
    return tuple(size for size in sizes if size is not None)


def _run_size_from_state(path: Path, name: str) -> RunSize | None:
    """The size of the run that wrote this state; None where the state can't be read."""
    try:
        if path.stat().st_size > MAX_STATE_BYTES:
            return None
        content: Any = load_log_json(path)
        if not isinstance(content, dict):
            return None
        log_builder = RunLogBuilder(str(path), "transformers")
        add_trainer_state(content, log_builder)
    except (DataError, OSError):
        return None
    return size_of_finished_run(log_builder.build(), name)
