"""Tries a reward function on rows and judges what was seen: `truetune reward`."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from truetune.checks.judgement import Judgement, NotJudged
from truetune.checks.reports import Subject
from truetune.checks.rule import RewardRule
from truetune.checks.rule_runner import choose_rules, run_rules
from truetune.errors import UsageError
from truetune.generation.reward_trial import RewardTrial
from truetune.rewards.reward_process import parse_target
from truetune.rewards.reward_report import RewardReport
from truetune.rewards.rows_for_rewards import MissingColumn, ReadRows, read_reward_rows
from truetune.rewards.trial_in_progress import TrialOptions
from truetune.rewards.try_reward_function import try_reward_function
from truetune.settings.run_spec import RunSpec

# Chosen: 20 rows take 1 s for a function of regular expressions, 6 s for one that parses mathematics (docs/reward.md).
# A fault of one row in ten is then missed by one trial in eight.
DEFAULT_ROWS = 20
"""Rows that are tried"""
GOLDEN_HINT = "name a column of whole completions that it should pay (--golden COLUMN), or a form (--answer-form)"


def check_reward(
    function: str,
    data: Sequence[str],
    *,
    rows: int = DEFAULT_ROWS,
    options: TrialOptions | None = None,
    spec: RunSpec | None = None,
) -> RewardReport:
    """Try a reward function on the first rows of some files.

    Args:
        function: `FILE.py:FUNCTION` or `MODULE:FUNCTION`.
        data: files of rows.
        rows: how many of them.
        options: how it is tried.
        spec: which rules judge.

    Raises:
        UsageError: there is no such function, file or column.
        DataError: the rows can't be read.
        RewardFunctionError: the function's file can't be imported.
    """
    started = time.perf_counter()
    spec = spec or RunSpec()
    target = parse_target(function)
    read = read_reward_rows(data, rows)
    try:
        trial = try_reward_function(target, read.rows, options or TrialOptions())
    except MissingColumn as error:
        # The column may be on the lines that could not be read.
        if read.broken:
            raise UsageError(f"{error}; {read.lines_without_row}") from None
        raise
    judgement = Judgement.of([judge_reward(trial, spec), Judgement(not_judged=_unread(read))])
    return RewardReport(
        spec=spec.model_copy(update={"data": tuple(data)}),
        subjects=(Subject("reward function", function, tuple(_facts(trial))),),
        findings=judgement.findings,
        examined=judgement.examined,
        not_judged=judgement.not_judged,
        seconds=time.perf_counter() - started,
        trial=trial,
    )


def judge_reward(trial: RewardTrial, spec: RunSpec) -> Judgement:
    """The findings of the selected rules on a reward function, and what could not be tried."""
    judgement = run_rules(trial, choose_rules(spec, RewardRule))
    return Judgement.of([judgement, Judgement(not_judged=tuple(_not_tried(trial)))])


def _unread(read: ReadRows) -> tuple[NotJudged, ...]:
    """The lines that hold no row. The others were tried, so that it is told and is no failure of the trial."""
    if not read.broken:
        return ()
    return (NotJudged("rows", read.lines_without_row, asked=False, always_told=True),)


def _facts(trial: RewardTrial) -> Iterator[tuple[str, str]]:
    """Short facts that head the report."""
    yield "rows", f"{trial.rows:,}"
    yield "tried", f"{trial.completions:,} completions in {trial.calls:,} calls"
    yield "completions as", trial.completions_as
    yield "right answers", trial.reference_column or "it takes none"


def _not_tried(trial: RewardTrial) -> Iterator[NotJudged]:
    """What was asked for and could not be tried."""
    if trial.reference_problem:
        yield NotJudged(
            "right answers", trial.reference_problem, unlock=f"--reference COLUMN; or {GOLDEN_HINT}"
        )
    elif trial.was_scored and trial.reference_column and not trial.best_form:
        if trial.may_pay_for_more and not trial.reads_messages_as_texts:
            yield NotJudged("right answers", _why_unpaid(trial), unlock=GOLDEN_HINT)
    elif _may_pay_for_what_was_not_tried(trial):
        yield NotJudged(
            "what it pays for",
            f"each of {trial.completions:,} completions gets {trial.constant:g}",
            unlock=GOLDEN_HINT,
        )
    if trial.is_out_of_time:
        yield NotJudged(
            "all completions",
            f"the trial was ended after {trial.completions:,} completions: the function is too slow for more",
            unlock="try fewer rows (--rows), or give it more time (--max-seconds)",
        )


def _may_pay_for_what_was_not_tried(trial: RewardTrial) -> bool:
    """Does it give 0 or less for all, with no other reason known than that its form was not tried?"""
    if trial.depends_on != "nothing" or trial.reads_messages_as_texts:
        return False
    return trial.constant is not None and trial.constant <= 0


def _why_unpaid(trial: RewardTrial) -> str:
    """Why it can't be known that no right answer is paid."""
    if trial.has_golden_completions:
        return f"`{trial.reference_column}` gets no more than wrong completions, and nothing gets more than it"
    reason = f"none of {len(trial.forms)} forms of `{trial.reference_column}` is paid"
    if trial.other_columns:
        return f"{reason}, and the function reads {', '.join(trial.other_columns)} as well"
    if trial.parses_completions:
        return f"{reason}, and the function parses completions as JSON, XML or the like, and may read other keys"
    return f"{reason}, and the function may pay for something else: code, prose, a formula"
