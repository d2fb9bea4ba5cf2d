"""`truetune demo`: check the broken set and the mended one, then prove by training."""

from __future__ import annotations

import importlib.util
import json
import shutil
import tempfile
from pathlib import Path

from rich.console import Console
from rich.progress import Progress
from rich.text import Text

from truetune.checks.report import Report
from truetune.checks.run import check, view
from truetune.demo import BROKEN, DATA, MAX_LENGTH, TOKENIZER
from truetune.demo.prove import STEPS, Proof, Run, prove
from truetune.report.show import render_view
from truetune.report.terminal import render_report
from truetune.spec.run import RunSpec

BLOCKS = "▁▂▃▄▅▆▇█"
WIDTH = 40


def demo(console: Console) -> int:
    """Draw the demo; 0 where all went as it should."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = broken_tokenizer(Path(scratch))
        _title(console, "1. A support chat with planted faults, and a tokenizer whose pad token is its EOS")
        broken = _check(BROKEN, folder)
        render_report(broken, console)
        _title(console, "2. The same, mended")
        mended = _check(DATA, TOKENIZER)
        render_report(mended, console)
        _title(console, "3. A row as the model sees it: what is learned stands in [brackets]")
        render_view(view(_spec(DATA, TOKENIZER), 0)[0], console)
        _title(console, "4. The proof: the same tiny model, trained with pad = eos and without")
        missing = [name for name in ("torch", "transformers") if importlib.util.find_spec(name) is None]
        if missing:
            console.print(Text(f"left out, as {' and '.join(missing)} is not installed: pip install 'truetune[train]'"))
            return int(not broken.failed() or bool(mended.findings))
        _draw(_proof(console), console)
    return int(not broken.failed() or bool(mended.findings))


def broken_tokenizer(scratch: Path) -> Path:
    """A copy of the demo's tokenizer whose pad token is its EOS and whose generation stops at neither."""
    folder = scratch / "tokenizer"
    shutil.copytree(TOKENIZER, folder)
    for name, changes in (
        ("tokenizer_config.json", {"pad_token": "<|im_end|>"}),
        ("special_tokens_map.json", {"pad_token": "<|im_end|>"}),
        ("generation_config.json", {"eos_token_id": 0, "pad_token_id": 3}),
    ):
        path = folder / name
        path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), **changes}), encoding="utf-8")
    return folder


def _spec(data: Path, tokenizer: Path) -> RunSpec:
    return RunSpec(data=(str(data),), tokenizer=str(tokenizer), max_length=MAX_LENGTH)


def _check(data: Path, tokenizer: Path) -> Report:
    return check(_spec(data, tokenizer))


def _title(console: Console, text: str) -> None:
    console.print()
    console.print(Text(text, style="bold reverse" if console.is_terminal else "bold"))
    console.print()


def _proof(console: Console) -> Proof:
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("training twice", total=2 * STEPS)
        return prove(step=lambda: progress.advance(task))


def _draw(proof: Proof, console: Console) -> None:
    for run in (proof.broken, proof.right):
        console.print(
            f"{run.name:>9}  loss {_curve(run)} {run.losses[0]:.2f} to {run.losses[-1]:.4f}   "
            f"recited {run.recited} of {proof.rows}, stopped {run.stopped} of {proof.rows}"
        )
    console.print()
    console.print(Text(f"pad = eos answers: {proof.broken.sample[:200]!r}", style="red"))
    console.print(Text(f"right answers:     {proof.right.sample[:200]!r}", style="green"))
    console.print(f"\ntwo trainings of {STEPS} steps and {2 * proof.rows} answers in {proof.seconds:.0f} s")


def _curve(run: Run) -> str:
    """The losses as blocks, on a scale from 0 to the first."""
    every = max(1, len(run.losses) // WIDTH)
    top = run.losses[0]
    return "".join(BLOCKS[min(7, int(8 * loss / top))] for loss in run.losses[::every])
