"""Compares two logs of one training that have the same epochs, and far fewer steps in one of them.

Whoever moves a run from one GPU to eight keeps the settings, and makes an eighth of the steps: the warm-up outlasts the
run, and the loss hardly falls. The log that did well shows it best.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from truetune.checks.config.setting_out_of_range import SettingOutOfRange
from truetune.checks.config.warmup_longer_than_run import WarmupLongerThanRun
from truetune.checks.findings import Finding
from truetune.checks.log.learning_rate_never_peaked import LearningRateNeverPeaked
from truetune.checks.log.run_ended_after_few_steps import RunEndedAfterFewSteps
from truetune.logs.run_log import Floats, RunLog

ABOUT_STEPS = (
    LearningRateNeverPeaked.name(),
    WarmupLongerThanRun.name(),
    RunEndedAfterFewSteps.name(),
    SettingOutOfRange.name(),
)
"""Rules on runs of too few steps"""
SAME_EPOCHS = 0.02
"""Share by which the epochs of two logs of one training differ: the last record may stand before the end"""
SAME_START = 0.15
"""Share by which their first losses differ: those of single batches of one set"""
FEWER = 2.0
"""Times the steps, from which on a step has other rows. Chosen, not measured: two GPUs instead of one make it 2"""


class TwoLogs(NamedTuple):
    """Two logs of one training, of which one made far fewer steps."""

    few: RunLog
    many: RunLog


def name_log_with_more_steps(findings: Sequence[Finding], logs: Sequence[RunLog]) -> list[Finding]:
    """The findings; those on too few steps name the log of the same training that made more."""
    pair = _two_logs_of_one_training(logs)
    if pair is None:
        return list(findings)
    few, many = (f"{log.done_steps:,.0f}" for log in pair)
    times = pair.many.done_steps / pair.few.done_steps
    losses = [float(_finite_losses(log)[-1]) for log in pair]
    longer, shorter = _log_name(pair.many), _log_name(pair.few)
    proof = (
        f"{longer} made {many} steps in the same {pair.many.epochs_at_end:.3g} epochs, and"
        f" its loss ended at {losses[1]:.3g}"
        f" ({losses[0]:.3g} in {shorter}): where both train the same rows, a step of the shorter run has about"
        f" {times:.2g} times as many, as more GPUs or a larger batch make it"
    )
    help_of_batch = f"; or lower gradient_accumulation_steps or the batch by a factor of {times:.2g}, as in {longer}"
    return [
        replace(one, evidence=(*one.evidence, proof), remedy=f"{one.remedy}{help_of_batch}")
        if one.rule in ABOUT_STEPS and few in f"{one.message} {' '.join(one.evidence)}"
        else one
        for one in findings
    ]


def _two_logs_of_one_training(logs: Sequence[RunLog]) -> TwoLogs | None:
    """The two logs of a check, where they are of one training with other steps; None elsewhere."""
    trained = [
        log
        for log in logs
        if _finite_losses(log).size and log.epochs_at_end and not log.is_numbered
    ]
    if len(trained) != 2:
        return None
    pair = TwoLogs(*sorted(trained, key=lambda log: log.done_steps))
    is_fewer = 0 < FEWER * pair.few.done_steps <= pair.many.done_steps
    return pair if is_fewer and _have_same_epochs_and_first_loss(pair) else None


def _have_same_epochs_and_first_loss(pair: TwoLogs) -> bool:
    """Do two logs have as many epochs, and begin at one loss?"""
    few, many = pair
    starts = [float(_finite_losses(log)[0]) for log in pair]
    is_as_long = abs(few.epochs_at_end - many.epochs_at_end) <= SAME_EPOCHS * many.epochs_at_end
    return is_as_long and abs(starts[0] - starts[1]) <= SAME_START * max(starts)


def _finite_losses(log: RunLog) -> Floats:
    """The losses that are numbers."""
    return log.curve("loss").finite().value


def _log_name(log: RunLog) -> str:
    """The log's file or folder."""
    return Path(log.path).name
