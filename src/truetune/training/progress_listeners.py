"""Listeners that are told how a run goes: the terminal, a notebook, or nobody.

`Listener` is the protocol, which `report` implements for a terminal. A callback of the trainer tells it of the steps;
the run itself tells the rest. Training depends on no drawing code, and processes besides the first are silent.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Mapping
from typing import Any, Protocol

import torch
from transformers import TrainerCallback

from truetune.checks.reports import Report
from truetune.generation.answer_samples import SamplingPass


class Listener(Protocol):
    """The protocol of who is told how a run goes. Each method is called by the first process alone."""

    def say(self, line: str) -> None:
        """Show one line of the log."""

    def busy(self, what: str, done: int, total: int) -> None:
        """Show that it is busy with a long preparation (checking, reading, encoding), and how far it is, in bytes; it
        has ended where `done` is `total`.
        """

    def draw(self, report: Report) -> None:
        """Show the report of a check before the run."""

    def begin(self, steps: int, done: int) -> None:
        """The training begins; `done` steps were made before, in a run that is resumed."""

    def step(self, step: int, figures: Mapping[str, float]) -> None:
        """A step has been made. The figures (loss, learning_rate, tokens/s, memory in bytes) are the last known."""

    def look(self, sampling_pass: SamplingPass) -> None:
        """The model has answered its prompts in a sampling pass."""

    def end(self) -> None:
        """The training has ended, or was ended."""


class PlainListener:
    """A listener that prints lines: for a script or a notebook."""

    def say(self, line: str) -> None:
        """Print a line at once: a pipe would keep it back."""
        print(line, flush=True)

    def busy(self, what: str, done: int, total: int) -> None:
        """Show nothing while it is busy: a log has no bars."""

    def draw(self, report: Report) -> None:
        """Print one line for each finding."""
        for finding in report.findings:
            self.say(f"{finding.severity}: {finding.rule}: {finding.message}")

    def begin(self, steps: int, done: int) -> None:
        """Print how many steps are left."""
        self.say(f"training: {steps - done:,} steps")

    def step(self, step: int, figures: Mapping[str, float]) -> None:
        """Show nothing for a step: a line for each would bury the others."""

    def look(self, sampling_pass: SamplingPass) -> None:
        """Print how many answers of a sampling pass stop, in a line."""
        stopped = sum(sample.scores.stopped for sample in sampling_pass.samples)
        self.say(
            f"step {sampling_pass.step:,}: {stopped} of {len(sampling_pass.samples)} answers stop by themselves"
        )

    def end(self) -> None:
        """Show nothing at the end."""


class SilentListener(PlainListener):
    """A listener that says nothing: for the other processes of a run."""

    def say(self, line: str) -> None:
        """Say nothing."""


class ListenerCallback(TrainerCallback):
    """A trainer's callback that tells a listener what the trainer does. `tokens` is how many one
    step reads, on average.
    """

    def __init__(self, listener: Listener, tokens: float) -> None:
        self.listener, self.tokens = listener, tokens
        self.figures: dict[str, float] = {}
        self._last = 0.0

    def on_train_begin(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
        """Start the clock of the first step."""
        self.listener.begin(state.max_steps, state.global_step)
        self._last = time.perf_counter()

    def on_step_end(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
        """Measure speed and memory of the step, and tell the listener unless a log follows at once."""
        now = time.perf_counter()
        self.figures["tokens/s"] = self.tokens / max(now - self._last, 1e-9)
        self.figures["memory"] = peak_gpu_or_process_memory_bytes()
        self._last = now
        # on_log comes right after in the same step, and brings the new loss: two lines for one step
        # would flicker on a terminal.
        if not control.should_log:
            self.listener.step(state.global_step, self.figures)

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **parts: Any) -> None:
        """Keep the figures that the trainer logs, and tell the listener where a loss is among them."""
        # The last known of each stays, so that a bar shows the loss between two lines of the log as
        # well.
        self.figures |= {k: v for k, v in (logs or {}).items() if isinstance(v, int | float)}
        if "loss" in (logs or {}):
            self.listener.step(state.global_step, self.figures)

    def on_train_end(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
        """Tell the listener that the training has ended."""
        self.listener.end()


def peak_gpu_or_process_memory_bytes() -> float:
    """The most bytes that the GPU held, or that this process had in RAM."""
    if torch.cuda.is_available():
        return float(torch.cuda.max_memory_allocated())
    # Linux gives KiB here, macOS bytes.
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return float(peak if sys.platform == "darwin" else peak * 1024)
