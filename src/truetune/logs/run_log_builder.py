"""RunLogBuilder: collects logged records, in the order of their file, into the curves of a RunLog.

Readers of all formats (JSONL, TensorBoard, W&B, console output) give their records to one builder, so what resumed
runs, names and missing steps mean is decided once, here. Points are kept in arrays of doubles and not as dictionaries:
a run of a million steps needs 16 bytes a value. The price is that whatever is no number is left out; `facts` holds the
few settings and results that are worth keeping beside the curves.
"""

from __future__ import annotations

import math
import re
from array import array
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from truetune.logs.canonical_metric_names import (
    MEAN_TRAIN_LOSS,
    RUN_RESULT_KEYS,
    STEP_KEYS,
    canonical_metric_name,
    program_of_metric_names,
)
from truetune.logs.console.read_console_output import ConsoleOutput
from truetune.logs.map_preference_metric_names_to_trl import (
    rename_llama_factory_keys,
    trl_names_of_preference_metrics,
)
from truetune.logs.run_log import Curve, RunLog

PADDED_NON_FINITE = re.compile(r"^([-+]?(?:nan|inf))\.0$", re.IGNORECASE)
"""`nan.0`: a bar that pads what it takes for a whole number"""
MAX_CURVES = 2_000
"""More names than that are no log of one run: the rest is counted in the notes. Chosen, not measured:
enough for a norm of each layer, and a bound on the memory that a hostile file takes."""
MAX_PARTS = 50
"""A run is not resumed more often than that: then its records are only out of order (several processes that write one
file). Chosen, not measured."""
NON_METRIC_KEYS = {
    "percentage",
    "elapsed_time",
    "remaining_time",
    "_runtime",
    "_wandb",
    "total_steps",
    "max_steps",
}
"""Keys of records that are no quantity of the run"""
IGNORED_KEYS = NON_METRIC_KEYS.union(STEP_KEYS)


class RunLogBuilder:
    """Takes records (name -> value, with a step among them) in the order in which they were written."""

    def __init__(self, path: str, format: str) -> None:
        self.path = path
        self.format = format
        self.facts: dict[str, object] = {}
        self.files: list[str] = []
        self.checkpoints: tuple[int, ...] = ()
        self.records = 0
        self.skipped: Counter[str] = Counter()
        """What was left out -> how often"""
        self.output: ConsoleOutput | None = None
        """What console output showed besides records"""
        # A part is what one process wrote. A resumed run repeats steps, and only the border between its parts
        # tells which of two values at one step is the later one.
        self._parts: list[dict[str, tuple[array[float], array[float]]]] = [{}]
        self._names: dict[str, str] = {}
        self._last = -math.inf
        self._steps_known = False
        self._numbered = 0

    def note_skipped(self, what: str) -> None:
        """Note something that was left out of the log."""
        self.skipped[what] += 1

    def start_part(self) -> None:
        """Start a new part: what follows was written by another process."""
        if self._parts[-1]:
            self._parts.append({})
        self._last = -math.inf

    def add_record(self, record: Mapping[str, Any]) -> None:
        """Add one record. Values that are no numbers are left out; strings that are numbers are
        taken.
        """
        self.records += 1
        step = self._step_of_record(record)
        # Only a training loss that goes back begins another part: an evaluation is often logged at the step before,
        # and counters of rewards or of the system run behind.
        if step < self._last and any(
            canonical_metric_name(name) in ("loss", MEAN_TRAIN_LOSS) for name in record
        ):
            self.start_part()
        self._last = max(self._last, step)
        if not RUN_RESULT_KEYS.isdisjoint(record):
            self._keep_results_as_facts(record)
            return
        for name, value in rename_llama_factory_keys(record).items():
            if name not in IGNORED_KEYS:
                self._add_value(name, step, value)
        total = parse_logged_number(record.get("total_steps", record.get("max_steps")))
        if total is not None:
            self.facts["max_steps"] = int(total) if math.isfinite(total) else total

    def add_point(self, name: str, step: float, value: float) -> None:
        """Add one value of one quantity, by its own name."""
        ours = self._names.get(name)
        if ours is None:
            if len(self._names) >= MAX_CURVES:
                self.note_skipped(f"values under more than {MAX_CURVES:,} names")
                return
            ours = self._names[name] = canonical_metric_name(name)
        steps, values = self._parts[-1].setdefault(ours, (array("d"), array("d")))
        steps.append(step)
        values.append(value)

    def build(self) -> RunLog:
        """The RunLog of all that was added."""
        parts = [part for part in self._parts if part]
        self._place_mean_train_loss(parts)
        if len(parts) > MAX_PARTS:
            self.note_skipped(
                f"records out of order ({len(parts):,} steps backwards): they are sorted by step"
            )
            parts = [_join_parts_as_one(parts)]
        parts = [_rename_preference_metrics(part) for part in parts]
        repeated = _count_losses_at_repeated_steps(parts)
        if repeated:
            self.skipped["losses at a step that has another: the last is taken"] = repeated
        curves = tuple(
            {name: _sorted_curve(*points) for name, points in part.items()} for part in parts
        )
        return RunLog(
            path=self.path,
            format=self.format,
            files=tuple(self.files),
            parts=curves,
            curves=merge_curves_of_parts(curves),
            facts=self.facts,
            checkpoints=self.checkpoints,
            output=self.output,
            program=program_of_metric_names(self._names),
            is_numbered=bool(self._numbered),
            notes=tuple(
                f"{what} ({count:,} times)" if count > 1 else what
                for what, count in self.skipped.items()
            ),
        )

    def _place_mean_train_loss(
        self, parts: list[dict[str, tuple[array[float], array[float]]]]
    ) -> None:
        """Take `train/train_loss` as a result if there is another loss, and as the loss itself if
        there is none.

        transformers writes the mean of the run under this name, once, at its end; other trainers write their
        loss under it, step by step. A point of the mean in the curve would be a false last loss.
        """
        has_loss = any("loss" in part for part in parts)
        for part in parts:
            mean = part.pop(MEAN_TRAIN_LOSS, None)
            if mean is not None and has_loss:
                self.facts["train_loss"] = mean[1][-1]
            elif mean is not None:
                part["loss"] = mean

    def _step_of_record(self, record: Mapping[str, Any]) -> float:
        """The step of a record: its own, otherwise that of the record before it, otherwise its
        number.
        """
        for name in STEP_KEYS:
            if name in record:
                value = record[name]
                if name == "global_step/max_steps" and isinstance(value, str) and "/" in value:
                    value, _, total = value.partition("/")
                    self.facts["max_steps"] = parse_logged_number(total)
                step = parse_logged_number(value)
                if step is not None and math.isfinite(step):
                    self._steps_known = True
                    return step
        # A record without a step in a log that has steps (results, an evaluation) belongs to the step before it. A log
        # without any step is counted: distances are wrong then, and `RunLog.is_numbered` says so.
        if self._steps_known:
            return self._last if math.isfinite(self._last) else 0.0
        self._numbered += 1
        return float(self.records)

    def _add_value(self, name: str, step: float, value: Any) -> None:
        """Add a value as a point, and note one that is no number."""
        if value is None or value == "":
            return
        # binary logs hold floats alone: the common case skips the parsing
        number = value if type(value) is float else parse_logged_number(value)
        if number is None:
            if not isinstance(value, bool | dict | list):
                self.note_skipped(f"values of {name!r} that are no numbers")
            return
        self.add_point(name, step, number)

    def _keep_results_as_facts(self, record: Mapping[str, Any]) -> None:
        """Keep the figures of the whole run as facts: as points, they would be one more record at
        its end.
        """
        for name, value in record.items():
            number = parse_logged_number(value)
            if number is not None and name not in STEP_KEYS:
                self.facts[name.removeprefix("train/")] = number


def _rename_preference_metrics(
    part: dict[str, tuple[array[float], array[float]]],
) -> dict[str, tuple[array[float], array[float]]]:
    """The quantities of a process, under trl's names if they are those of a preference run."""
    names = trl_names_of_preference_metrics(part)
    return {names.get(name, name): kept for name, kept in part.items()}


def parse_logged_number(value: Any) -> float | None:
    """A log's value as a float; None if it is no number."""
    # Python's True is an int: a flag would become a curve of ones
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if isinstance(value, str):
        value = PADDED_NON_FINITE.sub(r"\1", value.strip())
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


def merge_curves_of_parts(parts: tuple[Mapping[str, Curve], ...]) -> dict[str, Curve]:
    """One curve of each quantity: a later part replaces what an earlier one logged from its first step on."""
    whole: dict[str, Curve] = {}
    for part in parts:
        for name, curve in part.items():
            before = whole.get(name)
            if before is None:
                whole[name] = curve
                continue
            if not curve:
                continue
            # steps between the checkpoint and the end of the first process were trained twice: what counts for the
            # final weights is the second time
            keep = before.step < curve.step[0]
            whole[name] = Curve(
                np.concatenate((before.step[keep], curve.step)),
                np.concatenate((before.value[keep], curve.value)),
            )
    return whole


def _sorted_curve(steps: array[float], values: array[float]) -> Curve:
    """The curve of these points, sorted by step; of several values at one step the last."""
    step, value = np.array(steps), np.array(values)
    if step.size > 1 and np.any(np.diff(step) <= 0):
        order = np.argsort(step, kind="stable")
        step, value = step[order], value[order]
        last = np.append(step[1:] != step[:-1], True)
        step, value = step[last], value[last]
    return Curve(step, value)


def _count_losses_at_repeated_steps(
    parts: list[dict[str, tuple[array[float], array[float]]]],
) -> int:
    """How many losses of a part stand at a step that has another loss in the same part."""
    steps_of_losses = [part["loss"][0] for part in parts if "loss" in part]
    return sum(len(steps) - len(set(steps)) for steps in steps_of_losses)


def _join_parts_as_one(
    parts: list[dict[str, tuple[array[float], array[float]]]],
) -> dict[str, tuple[array[float], array[float]]]:
    """All parts joined to one: the points of each name in the order in which they came."""
    whole: dict[str, tuple[array[float], array[float]]] = {}
    for part in parts:
        for name, (steps, values) in part.items():
            all_steps, all_values = whole.setdefault(name, (array("d"), array("d")))
            all_steps.extend(steps)
            all_values.extend(values)
    return whole
