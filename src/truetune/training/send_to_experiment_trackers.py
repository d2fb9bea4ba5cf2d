"""Sends curves, a table and an alert to the experiment trackers that a trainer reports to.

`send_to_trackers` goes through the trainer's own callbacks and uses each library's own API: no account or run is opened
here. Curves pass through the callback's `on_log`, so that they get the step and prefix of the trainer's figures.
Weights & Biases, MLflow, TensorBoard and Trackio also take the table. An alert is a notification in Weights & Biases
and Trackio, and a tag of the run in MLflow; TensorBoard has none.

The trade-off: other trackers (Comet, Neptune, ...) get the curves alone. What a tracker raises is returned as text: a
run must not end because a dashboard can't be reached.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from transformers.integrations.integration_utils import (
    MLflowCallback,
    TensorBoardCallback,
    TrackioCallback,
    WandbCallback,
)

MAX_ALERT_TITLE = 63  # Weights & Biases: "must be less than 64 characters long"


@dataclass(frozen=True, slots=True)
class TrackerTable:
    """A table under a name, as of one step of the run."""

    name: str
    columns: tuple[str, ...]
    rows: list[list[Any]]
    step: int


@dataclass(frozen=True, slots=True)
class TrackerAlert:
    """What a tracker notifies the user of."""

    title: str
    """Shorter than MAX_ALERT_TITLE"""
    text: str
    level: Literal["WARN", "ERROR"]


@dataclass(frozen=True, slots=True)
class TrainerMoment:
    """What transformers gives each method of a callback: the trainer's arguments, state, control and model."""

    args: Any
    state: Any
    control: Any
    model: Any


def send_to_trackers(
    callbacks: Iterable[Any],
    moment: TrainerMoment,
    curves: Mapping[str, float],
    table: TrackerTable,
    alert: TrackerAlert | None = None,
) -> list[str]:
    """Send curves, a table and an alert to the trackers among a trainer's callbacks.

    Call it in the first process alone.

    Args:
        callbacks: those of the trainer; others than trackers are left alone.
        moment: what the trainer gave the callback that calls this.
        curves: value of each curve, at the step of `moment.state`.
        table: not sent if it has no rows.
        alert: sent last; None where there is nothing to notify of.

    Returns:
        For each tracker that failed, its name and its error.
    """
    failures = []
    for callback in callbacks:
        # Other callbacks may react to on_log with anything; only trackers are known to take
        # figures.
        if not type(callback).__module__.startswith("transformers.integrations"):
            continue
        try:
            # By the callback's own method, so that curves land in the run, with the step and prefix
            # that the trainer's figures have.
            callback.on_log(
                moment.args, moment.state, moment.control, logs=dict(curves), model=moment.model
            )
            _send_table(callback, table)
            if alert is not None:
                _send_alert(callback, alert)
        except Exception as error:  # whatever the library of a tracker raises
            failures.append(f"{type(callback).__name__}: {type(error).__name__}: {error}")
    return failures


def _send_table(callback: Any, table: TrackerTable) -> None:
    """Send a table to a tracker that takes tables."""
    for kind, send in _TABLE_SENDERS.items():
        if table.rows and isinstance(callback, kind):
            send(callback, table)


def _send_alert(callback: Any, alert: TrackerAlert) -> None:
    """Send an alert to a tracker that has alerts, or a place for one."""
    if isinstance(callback, WandbCallback):
        callback._wandb.run.alert(alert.title, alert.text, level=alert.level)
    elif isinstance(callback, TrackioCallback):
        trackio = callback._trackio
        trackio.alert(alert.title, text=alert.text, level=trackio.AlertLevel[alert.level])
    elif isinstance(callback, MLflowCallback):
        # MLflow has no alerts. A tag can be searched for, and stands on the page of the run.
        callback._ml_flow.set_tags({"truetune": alert.title, "truetune.findings": alert.text})


def table_as_markdown(table: TrackerTable) -> str:
    """A table as Markdown, for trackers that show text and no tables."""
    lines = [table.columns, ("---",) * len(table.columns), *table.rows]
    return "\n".join(
        "| " + " | ".join(_markdown_cell(cell) for cell in line) + " |" for line in lines
    )


def table_as_columns(table: TrackerTable) -> dict[str, list[Any]]:
    """The values of each column of a table that has rows."""
    return {
        name: list(values)
        for name, values in zip(table.columns, zip(*table.rows, strict=True), strict=True)
    }


def _markdown_cell(value: Any) -> str:
    """A value as text that breaks no Markdown table."""
    if isinstance(value, float):
        return f"{value:.3g}"
    # An answer may hold markup, a table's bar, or line breaks: it has to be shown and not rendered.
    return str(value).replace("|", "\\|").replace("<", "&lt;").replace("\n", "<br>")


def _send_table_to_tensorboard_as_text(callback: Any, table: TrackerTable) -> None:
    """Send a table to TensorBoard as a Markdown text, since it has no tables."""
    if callback.tb_writer is not None:
        callback.tb_writer.add_text(table.name, table_as_markdown(table), table.step)
        callback.tb_writer.flush()


def _send_table_to_wandb(callback: Any, table: TrackerTable) -> None:
    """Send a table to Weights & Biases, at the step that the trainer's curves use."""
    rows = callback._wandb.Table(columns=list(table.columns), data=table.rows)
    callback._wandb.log({table.name: rows, "train/global_step": table.step})


def _send_table_to_mlflow_as_artifact(callback: Any, table: TrackerTable) -> None:
    """Send a table to MLflow as an artifact, to which it appends the rows of each table of this name."""
    callback._ml_flow.log_table(table_as_columns(table), artifact_file=f"{table.name}.json")


def _send_table_to_trackio(callback: Any, table: TrackerTable) -> None:
    """Send a table to Trackio; it takes a data frame."""
    frame = importlib.import_module("pandas").DataFrame(table.rows, columns=list(table.columns))
    rows = callback._trackio.Table(dataframe=frame)
    callback._trackio.log({table.name: rows, "train/global_step": table.step})


_TABLE_SENDERS: dict[type[Any], Callable[[Any, TrackerTable], None]] = {
    TensorBoardCallback: _send_table_to_tensorboard_as_text,
    WandbCallback: _send_table_to_wandb,
    MLflowCallback: _send_table_to_mlflow_as_artifact,
    TrackioCallback: _send_table_to_trackio,
}
