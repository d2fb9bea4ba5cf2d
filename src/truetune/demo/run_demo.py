"""Runs `truetune demo`: both data sets checked, one row shown token by token, and the proof by
training.

It runs what users will run, on data that ships with the package. The trade-off: without torch the proof is left out,
and the demo says how to get it.
"""

from __future__ import annotations

import importlib.util
import math
import tempfile
from collections.abc import Sequence
from contextlib import chdir
from pathlib import Path

from rich.console import Console
from rich.panel import Panel
from rich.progress import Progress, TaskID
from rich.table import Table
from rich.text import Text

from truetune.checks.check_data import check
from truetune.checks.reports import DataReport
from truetune.demo import BROKEN, DATA, MAX_LENGTH, TOKENIZER
from truetune.demo.plant_faults import write_faulty_tokenizer_copy
from truetune.demo.train_with_eos_and_own_pad import STEPS, BothTrainings, train_with_both_pads
from truetune.report.report_terminal import draw_verdict_findings_and_counts
from truetune.report.token_view_terminal import render_token_view
from truetune.report.visible_text import escape_invisible_characters
from truetune.settings.run_spec import RunSpec

# Those of the extra `train` that the proof imports.
NEEDED_PACKAGES = ("torch", "transformers")
BARS = "▁▂▃▄▅▆▇█"
# A bar for every fifth step: the table fits into 100 columns.
COLUMNS = 24


def run_demo(console: Console) -> int:
    """Run the demo and return the exit code: 1 where it does not show what it should."""
    console.rule("1. A support chat with planted faults, and a tokenizer with two")
    with tempfile.TemporaryDirectory() as folder:
        spoiled = _check_data(
            BROKEN, write_faulty_tokenizer_copy(Path(folder) / "tokenizer"), console
        )
    console.rule("2. The same chats, corrected")
    repaired = _check_data(DATA, TOKENIZER, console)
    console.rule("3. What one row teaches, token by token")
    render_token_view(repaired.views[0], console)
    console.rule("4. The proof: one tiny model, trained twice")
    is_as_expected = spoiled.failed() and not repaired.failed()
    if all(importlib.util.find_spec(name) for name in NEEDED_PACKAGES):
        proof = _train_with_progress(console)
        render_both_trainings(proof, console)
        is_as_expected = is_as_expected and (proof.broken.stopped, proof.sound.stopped) == (
            0,
            proof.rows,
        )
    else:
        console.print(
            Text(
                "It trains for real, in about a minute: pip install 'truetune[train]'", style="bold"
            )
        )
    console.print(Text(f"\nnext: truetune check {BROKEN} --tokenizer {TOKENIZER}"), soft_wrap=True)
    # The demo is a test as well: it fails where a rule no longer finds its fault.
    return 0 if is_as_expected else 1


def render_both_trainings(proof: BothTrainings, console: Console) -> None:
    """Draw both trainings of the demo: their loss curves, and what the broken and the sound model answer."""
    table = Table(
        "", "loss, on a log scale", "knows the answer", "stops", box=None, padding=(0, 2, 0, 0)
    )
    losses = proof.broken.losses + proof.sound.losses
    for outcome in (proof.broken, proof.sound):
        good = outcome.stopped == proof.rows
        table.add_row(
            outcome.name,
            _draw_loss_curve(outcome.losses, min(losses), max(losses)),
            f"{outcome.recited} of {proof.rows}",
            Text(f"{outcome.stopped} of {proof.rows}", style="bold green" if good else "bold red"),
        )
    console.print(table)
    console.print(Text(f"\nasked: {proof.question}", style="bold"))
    for outcome in (proof.broken, proof.sound):
        console.print(
            Panel(
                Text(escape_invisible_characters(outcome.sample)),
                title=outcome.name,
                title_align="left",
            )
        )
    console.print(
        f"{proof.seconds:.0f} s. The losses cannot tell them apart: a collator that masks labels by"
        " the id of the pad token masked every stop token too."
    )


def _check_data(data: Path, tokenizer: Path, console: Console) -> DataReport:
    """Check data, in its folder, so that its lines are named without their long path."""
    # Paths of an installed package fill half of the terminal.
    with chdir(data.parent):
        report = check(RunSpec(data=(data.name,), tokenizer=str(tokenizer), max_length=MAX_LENGTH))
    draw_verdict_findings_and_counts(report, console)
    return report


def _train_with_progress(console: Console) -> BothTrainings:
    """Train with both pads, with a bar for each."""
    with Progress(console=console, transient=True) as bars:
        tasks: dict[str, TaskID] = {}

        def step(name: str, loss: float) -> None:
            if name not in tasks:
                tasks[name] = bars.add_task(name, total=STEPS)
            bars.update(tasks[name], advance=1, description=f"{name}: loss {loss:.3f}")

        return train_with_both_pads(progress=step)


def _draw_loss_curve(losses: Sequence[float], low: float, high: float) -> str:
    """First and last loss, and between them a bar for every few steps, from `low` to `high` on a log scale."""
    heights = [
        math.log(loss / low) / math.log(high / low)
        for loss in losses[:: -(-len(losses) // COLUMNS)]
    ]
    bars = "".join(BARS[round(height * (len(BARS) - 1))] for height in heights)
    return f"{losses[0]:.2f} {bars} {losses[-1]:.3f}"
