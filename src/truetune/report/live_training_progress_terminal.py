"""What a training run shows on the terminal: a bar with its figures, the latest sample below it,
and lines above.

It listens to a run (`Listener`) and changes nothing in it. Where there is no terminal (a log of a cluster) it
prints at most some twenty lines for the whole run, because a line for each step makes a log that nobody reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from truetune.checks.reports import Report
from truetune.memory.estimate_memory import GIB
from truetune.report.report_terminal import render_report
from truetune.report.visible_text import clip_text, escape_invisible_characters

if TYPE_CHECKING:
    from truetune.generation.answer_samples import Sample, SamplingPass

MAX_LOG_LINES = 20
"""Lines of the log, where there is no terminal for a bar"""
FIGURE_FORMATS = {
    "loss": "loss {:.3f}",
    "loss/stop token": "stop {:.3f}",
    "rewards/margins": "margin {:.3f}",
    "learning_rate": "rate {:.1e}",
    "tokens/s": "{:,.0f} tokens/s",
}
MAX_CHARACTERS = 320
"""Characters of an answer that are shown"""


class TrainingTerminal:
    """What `truetune train` shows on stderr; a `Listener`."""

    def __init__(self, console: Console, *, quiet: bool = False) -> None:
        self.console, self.quiet = console, quiet
        self.bar = Progress(
            TextColumn("training"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
        )
        self.task = self.bar.add_task("", total=None)
        self.figures = ""
        self.live: Live | None = None
        self.long: Progress | None = None
        self.sample: RenderableType = Text()
        self.steps = 0

    def say(self, line: str) -> None:
        """Print a line above the bar, unless quiet."""
        if not self.quiet:
            self.console.print(Text(escape_invisible_characters(line)), soft_wrap=True)

    def busy(self, what: str, done: int, total: int) -> None:
        """Show that it is busy with a long preparation, such as reading or compiling, by a bar of its own."""
        # A bar that is redrawn in a log file is a thousand lines.
        if self.quiet or not self.console.is_terminal:
            return
        if self.long is None:
            self.long = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TimeRemainingColumn(),
                console=self.console,
                transient=True,
            )
            self.long.add_task(what)
            self.long.start()
        self.long.update(self.long.task_ids[0], description=what, completed=done, total=total)
        # rich keeps one live display at a time: this one ends before the next begins.
        if done >= total:
            self.long.stop()
            self.long = None

    def draw(self, report: Report) -> None:
        """Draw a report above the bar; one without findings in brief."""
        if not self.quiet:
            render_report(report, self.console, quiet=not report.findings)

    def begin(self, steps: int, done: int) -> None:
        """Start the bar of the run, at the steps that are done."""
        self.steps = steps
        self.bar.reset(self.task, total=steps, completed=done)
        if self.console.is_terminal and not self.quiet:
            self.live = Live(
                self._live_display(), console=self.console, refresh_per_second=4, transient=True
            )
            self.live.start()

    def step(self, step: int, figures: Mapping[str, float]) -> None:
        """Move the bar, and show the step's figures; where there is no terminal, print a line now
        and then.
        """
        text = ", ".join(
            shape.format(figures[name]) for name, shape in FIGURE_FORMATS.items() if name in figures
        )
        # In GiB, as the driver counts it.
        text += f", {figures['memory'] / GIB:.1f} GiB" if "memory" in figures else ""
        self.figures = text
        self.bar.update(self.task, completed=step)
        if self.live is not None:
            self.live.update(self._live_display())
        # The last step is always printed, so that the log ends with the final loss.
        elif step == self.steps or step % max(1, self.steps // MAX_LOG_LINES) == 0:
            self.say(f"step {step:,} of {self.steps:,}: {text}")

    def look(self, sampling_pass: SamplingPass) -> None:
        """Show a sampling pass: print how many answers stop, and show one of them below the bar."""
        answers = sampling_pass.samples
        stopped = sum(sample.scores.stopped for sample in answers)
        self.say(
            f"step {sampling_pass.step:,}: {stopped} of {len(answers)} answers stop by themselves"
            f" ({sampling_pass.seconds:.1f} s)"
        )
        if answers:
            # Another row at each pass: the same one again would hide that others fail.
            self.sample = _sample_panel(
                answers[sampling_pass.step % len(answers)], sampling_pass.step
            )

    def end(self) -> None:
        """Take the bar away at the end of the run."""
        if self.live is not None:
            self.live.stop()
            self.live = None

    def _live_display(self) -> Group:
        """What is redrawn: the bar, the figures and the latest sample."""
        return Group(self.bar, Text(self.figures), self.sample)


def _sample_panel(sample: Sample, step: int) -> Panel:
    """A panel with a question and its answer, and how the answer ended."""
    end = " [it stops]" if sample.scores.stopped else " [cut at the limit]"
    body = Text.assemble(
        (clip_text(escape_invisible_characters(sample.prompt.question), MAX_CHARACTERS), "dim"),
        "\n",
        clip_text(escape_invisible_characters(sample.answer.text), MAX_CHARACTERS),
        (end, "green" if sample.scores.stopped else "red"),
    )
    return Panel(body, title=f"step {step:,}", title_align="left", border_style="dim")
