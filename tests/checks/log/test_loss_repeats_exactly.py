"""Losses that return to the last digit, in records and in the text of progress bars, and losses that do not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from truetune.checks.diagnose_log import diagnose

RULE = "loss-repeats-exactly"
Writer = Callable[[int, int, float, int], str]


def bar(done: int, total: int) -> str:
    return f"{100 * done // total}%|###       | {done}/{total} [00:{done % 60:02d}<07:56,  1.98s/it"


def bar_of_the_run(epoch: int, batch: int, loss: float, batches: int) -> str:
    done = epoch * batches + batch + 1
    return f"Epoch {epoch + 1}, Step {batch}, Loss: {loss:.4f}:   {bar(done, 18 * batches)}]\n"


def bar_of_each_epoch(epoch: int, batch: int, loss: float, batches: int) -> str:
    # set_description draws the bar with the new loss, and the next step draws it again
    text = f"Epoch {epoch} | train loss {loss:.4f} | lr 1.0e-04: "
    return f"\r{text}{bar(batch, batches)}]\r{text}{bar(batch + 1, batches)}]" + "\n" * (
        batch + 1 == batches
    )


def words_behind_the_bar(epoch: int, batch: int, loss: float, batches: int) -> str:
    done = epoch * batches + batch + 1
    return f"\rTraining: {bar(done, 18 * batches)}, loss: {loss:.4f}]"


def few_digits(epoch: int, batch: int, loss: float, batches: int) -> str:
    return f"epoch {epoch + 1} step {epoch * batches + batch + 1} loss {loss:.2f}\n"


def record(epoch: int, batch: int, loss: float, batches: int) -> str:
    step = epoch * batches + batch + 1
    return json.dumps({"step": step, "loss": round(loss, 4), "epoch": step / batches}) + "\n"


WRITERS = (bar_of_the_run, bar_of_each_epoch, words_behind_the_bar, few_digits, record)


def rules_on(
    folder: Path, writer: Writer, fall: float, *, batches: int = 14, epochs: int = 18
) -> set[str]:
    """The rules that find something where each epoch multiplies the loss of each batch by `fall`."""
    hard = np.random.default_rng(3).uniform(0.85, 1.45, batches)
    text = "".join(
        writer(epoch, batch, float(hard[batch]) * fall**epoch, batches)
        for epoch in range(epochs)
        for batch in range(batches)
    )
    path = folder / ("log.jsonl" if writer is record else "train.log")
    path.write_text(text, encoding="utf-8")
    return {finding.rule for finding in diagnose(path).findings}


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("batches", [14, 35])
def test_losses_that_return_in_each_epoch(writer: Writer, batches: int, tmp_path: Path) -> None:
    rules = rules_on(tmp_path, writer, 1.0, batches=batches)
    assert RULE in rules
    # one fault, one finding: what follows from it is its evidence
    assert rules.isdisjoint({"flat-loss", "loss-repeats-with-the-epoch"})


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("fall", [0.9, 0.985])
def test_losses_that_fall_from_epoch_to_epoch(writer: Writer, fall: float, tmp_path: Path) -> None:
    assert RULE not in rules_on(tmp_path, writer, fall)


@pytest.mark.parametrize(
    "line",
    [
        # the loss is set every tenth step, and the bar is drawn at each
        "\rloss {tenth:.4f}: {bar}]",
        # a memorised set: the digits are too few to say anything
        "step {step} loss {low:.2f}\n",
        # bars over other rows
        "\rEvaluating, loss {same:.4f}: {bar}]",
        "\rValidation epoch 1, loss: {same:.4f}: {bar}]",
    ],
)
def test_equal_losses_that_prove_nothing(line: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    losses = 2.0 * np.exp(-np.arange(300) / 150) + rng.normal(0, 0.05, 300)
    text = "".join(
        line.format(
            step=step,
            tenth=losses[step - step % 10],
            low=0.01 + 0.01 * (step % 2),
            same=(1.2345, 1.3456, 1.4567)[step % 3],
            bar=bar(step, 300),
        )
        + f"\nstep {step} loss {losses[step]:.4f}\n" * ("rows" in line or "{same" in line)
        for step in range(300)
    )
    path = tmp_path / "train.log"
    path.write_text(text, encoding="utf-8")
    assert RULE not in {finding.rule for finding in diagnose(path).findings}
