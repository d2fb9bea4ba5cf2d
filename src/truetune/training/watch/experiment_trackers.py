"""Sends sampling passes to experiment trackers: the scores as curves, the samples as a table.

The trackers are those that the trainer has among its callbacks already (`send_to_experiment_trackers` says how): no
account or run is opened here, and a tracker that fails is told, and the run continues.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from statistics import fmean, median
from typing import Any

from truetune.generation.answer_samples import Sample, SamplingPass
from truetune.training.send_to_experiment_trackers import (
    TrackerTable,
    TrainerMoment,
    send_to_trackers,
)

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
    return send_to_trackers(
        callbacks,
        TrainerMoment(args, state, control, model),
        average_scores_of_pass_as_curves(look),
        TrackerTable(TABLE_NAME, TABLE_COLUMNS, samples_as_table_rows(look), look.step),
    )


def samples_as_table_rows(look: SamplingPass) -> list[list[Any]]:
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
