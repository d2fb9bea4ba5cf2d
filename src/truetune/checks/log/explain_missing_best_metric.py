"""Explains the exception of a run whose evaluations gave no metric of the name that picks the best checkpoint."""

from __future__ import annotations

import re
from typing import NamedTuple

from truetune.checks.log.eval_without_loss import evaluated_metrics
from truetune.errors import format_name_list
from truetune.logs.console.messages import KnownMessage
from truetune.logs.run_log import RunLog

EVALUATION_SETTINGS = "evaluation-settings"
MISSING_NAME = re.compile(
    r"KeyError: [\"']+(?:The `metric_for_best_model` training argument is set to ')?(?P<name>eval_\w{1,80})'"
)
"""The Trainer's look-up of the best metric, in its old and its new words"""
MAX_SHOWN = 4
"""Metrics that a message names"""


class MissingMetric(NamedTuple):
    """What an exception about a metric means, read beside the evaluations of its log."""

    title: str
    advice: str
    evidence: str


def explain_missing_metric(
    log: RunLog, text: str, message: KnownMessage | None
) -> MissingMetric | None:
    """Explain an exception about a metric that no evaluation gave; None for any other exception, or
    without evaluations.
    """
    match = MISSING_NAME.search(text)
    if message is None or message.name != EVALUATION_SETTINGS or match is None:
        return None
    name = match["name"]
    given = evaluated_metrics(log)
    if name in given or not (given or log.curve("eval_runtime")):
        return None
    if not given:
        return _explain_evaluations_without_metrics(log, name)
    shown = format_name_list(given[:MAX_SHOWN])
    return MissingMetric(
        f"the best checkpoint is chosen by `{name}`, which no evaluation gives",
        f"set metric_for_best_model to a metric that the evaluations give ({given[0]}), or return"
        f" `{name.removeprefix('eval_')}` from compute_metrics",
        f"the evaluations of this log give {shown}",
    )


def _explain_evaluations_without_metrics(log: RunLog, name: str) -> MissingMetric:
    """Explain evaluations that measure nothing: the Trainer finds no labels in their batches."""
    timings = [one for one in sorted(log.curves) if one.startswith("eval_")]
    return MissingMetric(
        f"the best checkpoint is chosen by `{name}`, but the evaluations gave no metric",
        'set label_names=["labels"] in TrainingArguments: the Trainer finds no labels through a PeftModel, and gives no'
        " loss; without PEFT, see that the rows of eval_dataset have labels",
        f"the evaluations of this log give only {format_name_list(timings[:MAX_SHOWN])}",
    )
