"""Puts the fault of rows or scripts before the bad loss in a log that it explains, and makes it
that finding's help.

The log alone can't tell a batch without a label from an overflow, or whose rate is in force. Where the script or its
rows prove it, that fault comes first, and the advice of the log does not lead elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from truetune.checks.effect_of_batches_without_label import IS_NAN
from truetune.checks.findings import Finding
from truetune.checks.log.deepspeed_trains_at_another_rate import DeepspeedTrainsAtAnotherRate
from truetune.checks.log.flat_loss import RAISE_THE_RATE, FlatLoss
from truetune.checks.log.grad_norm_explodes import GradNormExplodes
from truetune.checks.log.loss_diverges import LossDiverges
from truetune.checks.log.loss_not_finite import LossNotFinite
from truetune.checks.source.deepspeed_ignores_the_scripts_rate import (
    DeepspeedIgnoresTheScriptsRate,
)
from truetune.checks.source.prompts_fill_the_limit import PromptsFillTheLimit
from truetune.checks.source.scheduler_length_miscounted import SchedulerLengthMiscounted


def put_causes_of_losses_first(findings: Sequence[Finding]) -> list[Finding]:
    """The findings, with faults that explain a loss before what the log says of it."""
    kept = _explain_nan_loss_by_unlabelled_rows(list(findings))
    return _explain_flat_loss_by_schedule(_join_rate_findings_of_log_and_script(kept))


def _explain_flat_loss_by_schedule(findings: list[Finding]) -> list[Finding]:
    """A flat loss whose rate a miscounted schedule of a script holds down takes the script's help:
    the rate itself may be right.
    """
    scripts = [one for one in findings if one.rule == SchedulerLengthMiscounted.name()]
    if len(scripts) != 1 or not scripts[0].cases:
        return findings
    place = scripts[0].cases[0]
    where = f"{place.file}:{place.line}"
    remedy = (
        f"{scripts[0].remedy} ({where}): see {scripts[0].rule}; the rate that is set may be right"
    )
    return [
        replace(one, remedy=remedy)
        if one.rule == FlatLoss.name() and one.remedy.startswith(RAISE_THE_RATE)
        else one
        for one in findings
    ]


def _explain_nan_loss_by_unlabelled_rows(findings: list[Finding]) -> list[Finding]:
    """Puts batches without a label once, with the count of tokens if there is one, before the nan
    loss that they cause.
    """
    causes = [one for one in findings if IS_NAN in one.message]
    if not causes:
        return findings
    # Told by the characters, the same rows are a lower bound.
    counted = [one for one in causes if one.rule != PromptsFillTheLimit.name()] or causes
    cause = counted[0]
    others = [one for one in findings if one not in causes]
    told = [_with_help_of_unlabelled_rows(one, cause) for one in others]
    place = next((n for n, one in enumerate(others) if one.rule == LossNotFinite.name()), len(told))
    return [*told[:place], cause, *told[place:]]


def _with_help_of_unlabelled_rows(finding: Finding, cause: Finding) -> Finding:
    """A loss of the training that is not finite, with the help of the rows that make it so."""
    is_training = finding.rule == LossNotFinite.name() and finding.message.startswith("loss ")
    if not is_training and finding.rule != GradNormExplodes.name():
        return finding
    return replace(
        finding,
        remedy=f"{cause.remedy}: see {cause.rule}. Begin again from the model that the run began with, or a checkpoint"
        " before that step: the weights after it are nan",
    )


def _join_rate_findings_of_log_and_script(findings: list[Finding]) -> list[Finding]:
    """Joins two findings of a rate that DeepSpeed takes from its settings: the script shows it, and
    the log proves it.
    """
    scripts = [one for one in findings if one.rule == DeepspeedIgnoresTheScriptsRate.name()]
    logs = [one for one in findings if one.rule == DeepspeedTrainsAtAnotherRate.name()]
    if len(scripts) != 1:
        return findings
    proof = tuple(f"the log shows it: {one.message.partition(':')[0]}" for one in logs)
    script = replace(scripts[0], evidence=(*scripts[0].evidence, *proof))
    place = script.cases[0]
    where = f"{place.file}:{place.line}"
    kept = [one for one in findings if one not in logs and one is not scripts[0]]
    told = [
        replace(
            one, remedy=f"{script.remedy} ({where}): see {script.rule}; start again from the base"
        )
        if one.rule == LossDiverges.name()
        else one
        for one in kept
    ]
    return [script, *told]
