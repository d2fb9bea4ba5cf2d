"""Which logs say that few of the rows were trained, and which do not."""

from __future__ import annotations

from pathlib import Path

import pytest

import truetune

BAR = "100%|##########| {n}/{n} [00:01<00:00, 46.12 examples/s]\n"
SUMMARY = (
    "{{'train_runtime': {seconds}, 'train_samples_per_second': {rate}, 'train_steps_per_second': 2.0,"
    " 'train_loss': 0.1, 'epoch': {epochs}}}\n"
)


def records(epochs: float, last: float = 0.01) -> str:
    losses = (1.9, 1.0, 0.5, last, last, last)
    return "".join(
        f"{{'loss': {loss}, 'epoch': {epochs * (n + 1) / len(losses)}}}\n"
        for n, loss in enumerate(losses)
    )


def summary(rows: int, epochs: float) -> str:
    return SUMMARY.format(seconds=100.0, rate=rows * epochs / 100, epochs=epochs)


FEW = {
    "mapped": "18421 data/a.jsonl\nMap (num_proc=8): " + BAR.format(n=64) + records(300),
    "one epoch": "  9000 /data/rows.csv\nTokenizing train dataset: "
    + BAR.format(n=100)
    + records(1, 1.8),
    "banner": "Generating train split: 5200 examples [00:00, 9000 examples/s]\n***** Running training *****\n"
    "  Num examples = 128\n  Num Epochs = 40\n" + records(40),
    "by the rate": "52002 alpaca.jsonl\n" + records(50) + summary(200, 50),
    "with an evaluation": "8000 a.jsonl\n400 b.jsonl\nMap: "
    + BAR.format(n=80)
    + "Tokenizing eval dataset: "
    + BAR.format(n=4000)
    + records(20),
}
NOTED = {
    "by heart": records(80) + summary(50, 80),
    "banner": "***** Running training *****\n  Num examples = 40\n  Num Epochs = 100\n"
    + records(100),
}
ENOUGH = {
    "all": "18421 data/a.jsonl\nMap: " + BAR.format(n=18421) + records(3),
    "half": "18421 data/a.jsonl\nMap: " + BAR.format(n=9000) + records(30),
    "packed": "18421 data/a.jsonl\nMap: "
    + BAR.format(n=18421)
    + "***** Running training *****\n  Num examples = 150\n  Num Epochs = 12\n"
    + records(12),
    "packs by the banner": "18421 data/a.jsonl\n***** Running training *****\n  Num examples = 190\n  Num Epochs = 3\n"
    + records(3),
    "a part of a large set": "1000000 data/a.jsonl\nMap: " + BAR.format(n=20000) + records(2, 1.5),
    "another count": "lines 18421\nMap: " + BAR.format(n=64) + records(3),
    "long and not by heart": records(60, 0.9) + summary(5000, 60),
    "loading": "18421 data/a.jsonl\nLoading checkpoint shards: " + BAR.format(n=4) + records(20),
}


def severities(text: str, folder: Path) -> list[str]:
    path = folder / "train.log"
    path.write_text(text, encoding="utf-8")
    report = truetune.diagnose(str(path), select=["same-rows-over-and-over"])
    return [one.severity for one in report.findings]


@pytest.mark.parametrize("text", FEW.values(), ids=FEW)
def test_few_of_the_rows_are_found(text: str, tmp_path: Path) -> None:
    assert severities(text, tmp_path) == ["warning"]


@pytest.mark.parametrize("text", NOTED.values(), ids=NOTED)
def test_rows_known_by_heart_are_noted(text: str, tmp_path: Path) -> None:
    assert severities(text, tmp_path) == ["info"]


@pytest.mark.parametrize("text", ENOUGH.values(), ids=ENOUGH)
def test_usual_runs_are_left_alone(text: str, tmp_path: Path) -> None:
    assert severities(text, tmp_path) == []


def _lines_of_ranks(steps: int, *, is_shared_out: bool, rows: str, batch: str) -> str:
    """The lines of four processes, each of which prints the loss of its own batch."""
    lines = [f"[rank0] {rows}, {batch}"]
    for step in range(10, 2 * steps + 1, 10):
        for rank in (2, 0, 3, 1):
            loss = 1.7 - 0.3 * step / steps + (0.01 * rank if is_shared_out else 0.0) + 0.0123
            epoch = (step - 1) // steps
            lines.append(
                f"[rank{rank}] epoch {epoch} step {step}/{2 * steps} loss {loss:.4f} lr 9e-06"
            )
    return "\n".join(lines) + "\n"


ROWS, BATCH = "data/notes_train.jsonl: 4800 rows", "per-GPU batch 8"


@pytest.mark.parametrize(
    ("steps", "is_shared_out", "rows", "batch", "expected"),
    [
        (600, False, ROWS, BATCH, ["warning"]),
        (600, False, ROWS, "per_device_train_batch_size=8", ["warning"]),
        # The losses are averaged before they are printed, and the rows are shared out.
        (150, False, ROWS, BATCH, []),
        (150, True, ROWS, BATCH, []),
        (600, True, ROWS, BATCH, []),
        # Of a batch of all processes, these are the right number of steps.
        (600, False, ROWS, "batch 8", []),
        (600, False, ROWS, f"{BATCH}, tensor_parallel_size=4", []),
        (600, False, "data/notes_eval.jsonl: 4800 rows", BATCH, []),
    ],
)
def test_processes_with_the_same_batches(
    steps: int, is_shared_out: bool, rows: str, batch: str, expected: list[str], tmp_path: Path
) -> None:
    text = _lines_of_ranks(steps, is_shared_out=is_shared_out, rows=rows, batch=batch)
    assert severities(text, tmp_path) == expected
