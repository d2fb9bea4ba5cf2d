"""Lines that loops of one's own and Megatron, litgpt and Keras print, what they are read as, and what only looks so."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from truetune.checks.diagnose_log import diagnose
from truetune.logs.parse_printed_records import parse_printed_record
from truetune.logs.read_run_log import read_run

MEGATRON = (
    " [2026-02-09 01:00:09] iteration {step:8d}/    2000 | consumed samples: 256 | learning rate: 1.0E-05 |"
    " global batch size:   256 |{loss} loss scale: {scale} | number of skipped iterations:   0 |"
)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("[   5/600] loss=2.27 scale=64", {"batch": "5", "batches": "600", "loss": "2.27"}),
        ("120/3000 | loss 1.2 | lr 1e-5", {"batch": "120", "learning_rate": "1e-5"}),
        (
            MEGATRON.format(step=7, loss=" lm loss: 1.9E+00 |", scale="64.0"),
            {"step": "7", "loss": "1.9E+00"},
        ),
        (MEGATRON.format(step=7, loss="", scale="32.0"), {"step": "7", "loss_scale": "32.0"}),
        (" validation loss at iteration 100 | lm loss value: 2.0E+00 |", {"eval_loss": "2.0E+00"}),
        (
            "Epoch 1 | iter 9 step 3 | loss train: 1.2, val: 1.3 | iter time: 3 ms",
            {"loss": "1.2", "eval_loss": "1.3"},
        ),
        ("Epoch 1 | iter 9 step 3 | loss train: 1.2, val: n/a |", {"loss": "1.2"}),
        ("step 5 dev_loss 1.9 dev_ppl 6.7", {"eval_loss": "1.9"}),
        (
            ">>> epoch  1 done  train 1.71  dev 1.52  ppl 4.57",
            {"eval_loss": "1.52", "loss": "1.71"},
        ),
        ("step=10 loss=2.31 grad=0.000", {"grad_norm": "0.000"}),
    ],
)
def test_a_line_of_a_loop_is_a_record(line: str, expected: dict[str, str]) -> None:
    record = parse_printed_record(line)
    assert record is not None
    assert expected.items() <= record.items()


@pytest.mark.parametrize(
    "line",
    [
        "12/03 10:22:01 loss 3.2",
        "2026/03/12 10:22:01 INFO loss 3.2",
        "1/3 of the text says that the loss is 2.0",
        "700/600 loss 2.0",
        "epoch 1 done  train 0.71  dev 0.52",
        "epoch 1 done  train 0.71  dev 0.52  ppl 9.9",
        "iteration 5: lora scale: 16.0",
    ],
)
def test_what_only_looks_like_a_record_is_none(line: str) -> None:
    assert parse_printed_record(line) is None


def test_a_counter_that_begins_again_counts_batches_of_an_epoch(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    lines = [f"[{batch:4d}/40] loss={2 - 0.01 * batch}" for _ in range(3) for batch in range(1, 41)]
    path.write_text("\n".join(lines), encoding="utf-8")
    log = read_run(path)
    assert len(log.parts) == 1
    assert log.curve("loss").step.tolist() == list(range(1, 121))


def test_the_mean_of_an_epoch_is_no_second_loss(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    lines = []
    for epoch in range(1, 4):
        lines += [f"[ep {epoch:02d}/3] batch {b}/4 loss={2 / epoch}" for b in range(1, 5)]
        lines.append(f"epoch {epoch} done train loss 9.0 dev loss {1 + epoch / 10}")
    path.write_text("\n".join(lines), encoding="utf-8")
    log = read_run(path)
    assert log.curve("loss").value.max() == 2
    assert log.curve("eval_loss").value.tolist() == [1.1, 1.2, 1.3]


def loop_in_float16(scales: list[float]) -> str:
    return "\n".join(
        f"[{step:4d}/60] loss={2 - 0.01 * step + 0.02 * math.sin(step):.4f} scale={scale} gnorm=1.1"
        for step, scale in enumerate(scales, 1)
    )


@pytest.mark.parametrize(
    ("scales", "fires"),
    [
        ([65536 / 2 ** (step // 2) for step in range(60)], True),
        ([128 / 2**step for step in range(30)], True),
        # the search of the first steps, a scale that is doubled again, and one that was set by hand
        ([4294967296 / 2 ** min(step, 15) for step in range(60)], False),
        ([65536 / 2 ** min(step, 17) * (64 if step > 40 else 1) for step in range(60)], False),
        ([1.0] * 60, False),
    ],
)
def test_a_loss_scale_that_falls_to_nothing(
    scales: list[float], fires: bool, tmp_path: Path
) -> None:
    path = tmp_path / "run.log"
    path.write_text(loop_in_float16(scales), encoding="utf-8")
    rules = {finding.rule for finding in diagnose(path).findings}
    assert ("loss-scale-collapses" in rules) == fires


def preference_loop(*, accuracy: float, chosen: float, rejected: float, epoch: bool = False) -> str:
    lines = []
    for step in range(1, 121):
        wave = 0.1 * math.sin(step * 7)
        own, other = chosen * step / 120 + wave, rejected * step / 120 - wave
        at = min(accuracy, 0.5 + step * 0.3) if accuracy > 0.9 else accuracy + wave / 4
        lines.append(
            f"step {step} loss {0.69 - 0.001 * step:.4f} acc {at:.3f} margin {own - other:.3f}"
            f" r_chosen {own:.3f} r_rejected {other:.3f}"
            + (f" epoch {step / 40:.3f}" if epoch else "")
        )
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "rule", "fires"),
    [
        (preference_loop(accuracy=1.0, chosen=2, rejected=-4), "dpo-accuracy-at-once", True),
        (preference_loop(accuracy=0.7, chosen=2, rejected=-4), "dpo-accuracy-at-once", False),
        (preference_loop(accuracy=0.7, chosen=-18, rejected=-20), "dpo-chosen-falls", True),
        (preference_loop(accuracy=0.7, chosen=-2, rejected=-5), "dpo-chosen-falls", False),
        # the sides are told apart by far more than the chosen one lost
        (preference_loop(accuracy=0.7, chosen=-11, rejected=-40), "dpo-chosen-falls", False),
    ],
)
def test_a_preference_loop_without_epochs_and_log_probabilities(
    text: str, rule: str, fires: bool, tmp_path: Path
) -> None:
    path = tmp_path / "run.log"
    path.write_text(text, encoding="utf-8")
    assert (rule in {finding.rule for finding in diagnose(path).findings}) == fires


def test_an_export_of_wandb_is_the_log_of_its_folder(tmp_path: Path) -> None:
    rows = [f'"{step}","{2 - step / 100}"' for step in range(1, 60)]
    (tmp_path / "wandb_export.csv").write_text(
        "\n".join(['"Step","sun-1 - train/loss"', *rows]), encoding="utf-8"
    )
    assert read_run(tmp_path).curve("loss").step.size == 59


def test_a_table_of_figures_is_no_log_of_its_folder(tmp_path: Path) -> None:
    (tmp_path / "prices.csv").write_text("Step,price\n1,2.0\n2,3.0\n", encoding="utf-8")
    with pytest.raises(Exception, match="no log of a run"):
        read_run(tmp_path)


def bars_and_records(
    *, above: bool, epochs: float, head: str = "Num Epochs = 2", redrawn: bool = False
) -> str:
    """A run of 200 steps that prints its loss every 10, with its bar above or below the record of its step."""
    lines = [f"  {head}", "  Total optimization steps = 200"]
    for step in range(10, 130, 10):
        bar = f" {step // 2:2d}%|##        | {step}/200 [01:56<4:04:47, 11.65s/it]"
        record = f"{{'loss': {2 - step / 200:.4f}, 'epoch': {round(step / 200 * epochs, 2)}}}"
        lines += [bar, record] if above else [record, bar]
        lines += [bar] if redrawn else []
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    ("text", "last", "first"),
    [
        (bars_and_records(above=True, epochs=2), 120, 10),
        (bars_and_records(above=False, epochs=2), 120, 10),
        (bars_and_records(above=True, epochs=2, redrawn=True), 120, 10),
        (bars_and_records(above=True, epochs=3, head="Num Epochs = 3"), 120, 10),
        # Without the number of epochs, the bar below counts, and the last record follows at the pace of the others.
        (bars_and_records(above=True, epochs=2, head=""), 130, 20),
        # The epochs are of another run's length: nothing is known then.
        (bars_and_records(above=False, epochs=2, head="Num Epochs = 7"), 120, 10),
    ],
)
def test_steps_of_records_by_bars_and_epochs(
    text: str, last: int, first: int, tmp_path: Path
) -> None:
    path = tmp_path / "train.log"
    path.write_text(text, encoding="utf-8")
    log = read_run(str(path))
    assert (log.curve("loss").step[0], log.last_step) == (first, last)
