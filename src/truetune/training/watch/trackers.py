"""Looks in experiment trackers: the scores as curves, the samples as a table, by each library's own API."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from statistics import fmean, median
from typing import Any

from transformers.integrations.integration_utils import (
    MLflowCallback,
    TensorBoardCallback,
    TrackioCallback,
    WandbCallback,
)

from truetune.generation.answer_samples import Sample, SamplingPass

NAME = "answers/samples"
SHARES = (
    "stopped",
    "empty",
    "looped",
    "echoed",
    "repetition",
    "switched",
    "exact",
    "overlap",
    "parsed",
    "agrees",
)
COLUMNS = ("step", "prompt", "answer", "reference", "stopped", "stop_probability", "overlap")


def curves(look: SamplingPass) -> dict[str, float]:
    """`answers/stopped` and so on: shares, means and medians over the prompts for which there is such a score."""
    scores = [sample.scores for sample in look.samples]
    found = {
        **{name: _known(fmean, (getattr(score, name) for score in scores)) for name in SHARES},
        "markers": _known(fmean, (bool(score.markers) for score in scores)),
        "length_ratio": _known(median, (score.length_ratio for score in scores)),
        "stop_probability": _known(
            median, (sample.answer.stop_probability for sample in look.samples)
        ),
    }
    return {f"answers/{name}": value for name, value in found.items() if value is not None}


def _known(middle: Callable[[list[float]], float], values: Iterable[float | None]) -> float | None:
    known = [float(value) for value in values if value is not None]
    return middle(known) if known else None


def track(
    look: SamplingPass, callbacks: Iterable[Any], args: Any, state: Any, control: Any, model: Any
) -> list[str]:
    """Send a look to the trackers among a trainer's callbacks; the names of those that refused it, and why.

    Curves go where the trainer's own do. Call it in the first process alone.
    """
    refused = []
    for callback in callbacks:
        if not type(callback).__module__.startswith("transformers.integrations"):
            continue
        try:
            callback.on_log(args, state, control, logs=curves(look), model=model)
            for kind, send in TABLES.items():
                if isinstance(callback, kind):
                    send(callback, look)
        except (
            Exception
        ) as error:  # whatever the library of a tracker raises: a run does not end for it
            refused.append(f"{type(callback).__name__}: {type(error).__name__}: {error}")
    return refused


def table(look: SamplingPass) -> list[list[Any]]:
    """The samples as rows of COLUMNS."""
    return [_row(look.step, sample) for sample in look.samples]


def _row(step: int, sample: Sample) -> list[Any]:
    said, scores = sample.answer, sample.scores
    return [
        step,
        sample.prompt.question,
        said.text,
        sample.prompt.reference,
        scores.stopped,
        said.stop_probability,
        scores.overlap,
    ]


def _tensorboard(callback: Any, look: SamplingPass) -> None:
    if callback.tb_writer is not None:
        callback.tb_writer.add_text(NAME, _markdown(table(look)), look.step)
        callback.tb_writer.flush()


def _markdown(rows: list[list[Any]]) -> str:
    lines = [COLUMNS, ("---",) * len(COLUMNS), *rows]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines)


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    return str(value).replace("|", "\\|").replace("<", "&lt;").replace("\n", "<br>")


def _wandb(callback: Any, look: SamplingPass) -> None:
    rows = callback._wandb.Table(columns=list(COLUMNS), data=table(look))
    callback._wandb.log({NAME: rows, "train/global_step": look.step})


def _mlflow(callback: Any, look: SamplingPass) -> None:
    columns = {
        name: list(values)
        for name, values in zip(COLUMNS, zip(*table(look), strict=True), strict=True)
    }
    callback._ml_flow.log_table(columns, artifact_file=f"{NAME}.json")


def _trackio(callback: Any, look: SamplingPass) -> None:
    frame = importlib.import_module("pandas").DataFrame(table(look), columns=list(COLUMNS))
    rows = callback._trackio.Table(dataframe=frame)
    callback._trackio.log({NAME: rows, "train/global_step": look.step})


TABLES: dict[type[Any], Callable[[Any, SamplingPass], None]] = {
    TensorBoardCallback: _tensorboard,
    WandbCallback: _wandb,
    MLflowCallback: _mlflow,
    TrackioCallback: _trackio,
}
