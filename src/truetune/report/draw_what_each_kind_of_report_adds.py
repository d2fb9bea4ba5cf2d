"""What each kind of report draws on a terminal besides its findings.

A kind's module registers its function with `draw_details_by_kind`. Those modules import much (weights, answers,
servers), so that each is loaded only when a report of its class is drawn.
"""

from __future__ import annotations

import importlib
from functools import singledispatch

from rich.console import Console

from truetune.checks.reports import Report

DRAWER_MODULES = {
    "DoctorReport": "environment_terminal",
    "EvaluationReport": "evaluation_terminal",
    "MovementReport": "weight_diff_terminal",
    "RehearsalReport": "rehearsal_terminal",
    "RewardReport": "reward_terminal",
    "RolloutReport": "rollout_terminal",
    "SampleReport": "answers_terminal",
    "ScoreReport": "answers_terminal",
    "ServiceReport": "server_check_terminal",
    "SymptomReport": "symptom_terminal",
    "TokenizedReport": "tokenized_terminal",
}
"""Modules that register with `draw_details_by_kind`, by the class that they draw; what is not drawn is not imported"""


def draw_details_of_report(report: Report, console: Console, verbose: bool) -> None:
    """Draw what the report has besides findings."""
    # Looked up by the name of the class: to ask isinstance() the class would have to be
    # imported, and with it torch or a client of a server that this report never used.
    module = DRAWER_MODULES.get(type(report).__name__)
    if module:
        importlib.import_module(f"truetune.report.{module}")
    draw_details_by_kind(report, console, verbose)


@singledispatch
def draw_details_by_kind(report: Report, console: Console, verbose: bool) -> None:
    """Draw what a kind of report has besides findings; the modules of DRAWERS register theirs."""
