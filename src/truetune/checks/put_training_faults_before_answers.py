"""Puts a training fault that broke the model before the bad answers that follow from it, and makes
it their help.

A preference run with a rate a hundred times too high ends in garbage, loops, other languages and answers without an
end. Advice on tokenizers, data and stop tokens is beside the point then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from truetune.checks.answers.answers_are_gibberish import AnswersAreGibberish
from truetune.checks.answers.answers_are_too_long import AnswersAreTooLong
from truetune.checks.answers.answers_change_language import AnswersChangeLanguage
from truetune.checks.answers.answers_loop import AnswersLoop
from truetune.checks.answers.answers_never_stop import AnswersNeverStop
from truetune.checks.config.learning_rate_far_from_published import LearningRateFarFromPublished
from truetune.checks.findings import RANK, Finding
from truetune.checks.log.dpo_chosen_falls import DpoChosenFalls
from truetune.checks.log.loss_climbs_above_guessing import LossClimbsAboveGuessing
from truetune.checks.log.loss_diverges import LossDiverges
from truetune.checks.log.preference_rate_far_too_high import PreferenceRateFarTooHigh

PROOFS = (
    PreferenceRateFarTooHigh.name(),
    DpoChosenFalls.name(),
    LossClimbsAboveGuessing.name(),
    LossDiverges.name(),
)
"""Findings of a log by which the training itself has broken the model, the most telling first"""
BROKEN = (AnswersAreGibberish.name(), AnswersLoop.name())
"""Answers that are of no use at all"""
CONSEQUENCES = (
    *BROKEN,
    AnswersChangeLanguage.name(),
    AnswersAreTooLong.name(),
    AnswersNeverStop.name(),
)


def put_training_before_answers(findings: Sequence[Finding]) -> list[Finding]:
    """The findings, a training that broke the model before its garbage, where a log proves it."""
    serious = [one for one in findings if RANK[one.severity] >= RANK["warning"]]
    proofs = sorted(
        (one for one in serious if one.rule in PROOFS), key=lambda one: PROOFS.index(one.rule)
    )
    if not proofs or not any(one.rule in BROKEN for one in serious):
        return list(findings)
    causes = [*filter(_is_excessive_rate_setting, findings), proofs[0]]
    remedy = f"the training broke the model ({proofs[0].rule}): {causes[0].remedy}, and train again"
    rest = [
        replace(one, remedy=remedy) if one.rule in CONSEQUENCES else one
        for one in findings
        if one not in causes
    ]
    # What is known to have broken the model is an error, whatever it would be for itself.
    return [*(replace(one, severity="error") for one in causes), *rest]


def _is_excessive_rate_setting(finding: Finding) -> bool:
    """Is a finding about a setting of a learning rate far above what is published?"""
    return finding.rule == LearningRateFarFromPublished.name() and "far above" in finding.message
