"""Sends sampling passes to experiment trackers: the scores as curves, the samples as a table, by
each library's own API.

The trackers are those that the trainer has among its callbacks already: no account or run is opened here, and a tracker
that fails is told, and the run continues.
"""

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

TABLE_NAME = "answers/samples"
MEAN_SCORES = (
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
TABLE_COLUMNS = ("step", "prompt", "answer", "reference", "stopped", "stop_probability", "overlap")


def average_scores_of_pass_as_curves(sampling_pass: SamplingPass) -> dict[str, float]:
    """The scores of a pass as curves (`answers/stopped` and so on): shares, means and medians over
    the prompts for which there is such a score.
    """
    scores = [sample.scores for sample in sampling_pass.samples]
    values = {
        **{
            name: _average_of_known(fmean, (getattr(score, name) for score in scores))
            for name in MEAN_SCORES
        },
        "markers": _average_of_known(fmean, (bool(score.markers) for score in scores)),
        "length_ratio": _average_of_known(median, (score.length_ratio for score in scores)),
        "stop_probability": _average_of_known(
            median, (sample.answer.stop_probability for sample in sampling_pass.samples)
        ),
    }
    return {f"answers/{name}": value for name, value in values.items() if value is not None}


def _average_of_known(
    average: Callable[[list[float]], float], values: Iterable[float | None]
) -> float | None:
    """The mean or median (`average`) of the values that are known; None where none is."""
    known = [float(value) for value in values if value is not None]
    return average(known) if known else None


def send_pass_to_trackers(
    look: SamplingPass, callbacks: Iterable[Any], args: Any, state: Any, control: Any, model: Any
) -> list[str]:
    """Send a sampling pass to the trackers among a trainer's callbacks; gives the names of those
    that refused it, and why.

    Curves go where the trainer's own do. Call it in the first process alone.
    """
    refused = []
    for callback in callbacks:
        # Other callbacks may react to on_log with anything; only trackers are known to take
        # figures.
        if not type(callback).__module__.startswith("transformers.integrations"):
            continue
        try:
            # By the callback's own method, so that curves land in the run, with the step and prefix
            # that the trainer's figures have.
            callback.on_log(
                args, state, control, logs=average_scores_of_pass_as_curves(look), model=model
            )
            for kind, send in TABLE_SENDERS.items():
                if isinstance(callback, kind):
                    send(callback, look)
        except (
            Exception
        ) as error:  # whatever the library of a tracker raises: a run does not end for it
            refused.append(f"{type(callback).__name__}: {type(error).__name__}: {error}")
    return refused


def sample_table(look: SamplingPass) -> list[list[Any]]:
    """The samples of a pass as rows of TABLE_COLUMNS."""
    return [_table_row(look.step, sample) for sample in look.samples]


def _table_row(step: int, sample: Sample) -> list[Any]:
    """A sample as the values of TABLE_COLUMNS."""
    answer, scores = sample.answer, sample.scores
    return [
        step,
        sample.prompt.question,
        answer.text,
        sample.prompt.reference,
        scores.stopped,
        answer.stop_probability,
        scores.overlap,
    ]


def _send_pass_to_tensorboard_as_text(callback: Any, look: SamplingPass) -> None:
    """Send a pass to TensorBoard as a Markdown text, since it has no tables."""
    if callback.tb_writer is not None:
        callback.tb_writer.add_text(TABLE_NAME, _markdown_table(sample_table(look)), look.step)
        callback.tb_writer.flush()


def _markdown_table(rows: list[list[Any]]) -> str:
    """A Markdown table of rows under TABLE_COLUMNS."""
    lines = [TABLE_COLUMNS, ("---",) * len(TABLE_COLUMNS), *rows]
    return "\n".join(
        "| " + " | ".join(_markdown_cell(cell) for cell in line) + " |" for line in lines
    )


def _markdown_cell(value: Any) -> str:
    """A value as text that breaks no Markdown table."""
    if isinstance(value, float):
        return f"{value:.3g}"
    # An answer may hold markup, a table's bar, or line breaks: it has to be shown and not rendered.
    return str(value).replace("|", "\\|").replace("<", "&lt;").replace("\n", "<br>")


def _send_pass_to_wandb_as_table(callback: Any, look: SamplingPass) -> None:
    """Send a pass to Weights & Biases as a table, at the step that the trainer's curves use."""
    rows = callback._wandb.Table(columns=list(TABLE_COLUMNS), data=sample_table(look))
    callback._wandb.log({TABLE_NAME: rows, "train/global_step": look.step})


def _send_pass_to_mlflow_as_artifact(callback: Any, look: SamplingPass) -> None:
    """Send a pass to MLflow as an artifact, to which it appends the rows of each pass."""
    columns = {
        name: list(values)
        for name, values in zip(TABLE_COLUMNS, zip(*sample_table(look), strict=True), strict=True)
    }
    callback._ml_flow.log_table(columns, artifact_file=f"{TABLE_NAME}.json")


def _send_pass_to_trackio_as_table(callback: Any, look: SamplingPass) -> None:
    """Send a pass to Trackio as a table; it takes a data frame."""
    frame = importlib.import_module("pandas").DataFrame(
        sample_table(look), columns=list(TABLE_COLUMNS)
    )
    rows = callback._trackio.Table(dataframe=frame)
    callback._trackio.log({TABLE_NAME: rows, "train/global_step": look.step})


TABLE_SENDERS: dict[type[Any], Callable[[Any, SamplingPass], None]] = {
    TensorBoardCallback: _send_pass_to_tensorboard_as_text,
    WandbCallback: _send_pass_to_wandb_as_table,
    MLflowCallback: _send_pass_to_mlflow_as_artifact,
    TrackioCallback: _send_pass_to_trackio_as_table,
}
