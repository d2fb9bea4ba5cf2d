"""Diagnoses a training log: reads the log of a run, and lets the rules on logs judge its curves,
settings and output.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

from truetune.checks.count_optimizer_steps import counts_packed_sequences, unit_of_rows
from truetune.checks.judgement import Judgement, NotJudged
from truetune.checks.log.evidence.curves_of_reward_training import (
    CLIPPED_SHARES,
    IMPORTANCE_RATIOS,
    SAMPLER_CORRELATION,
    SAMPLER_DIFFERENCES,
)
from truetune.checks.loss_floors_from_frequencies import read_data_for_loss_floor
from truetune.checks.reports import Report, Subject
from truetune.checks.rows.few_distinct_answers import FewDistinctAnswers
from truetune.checks.rule import LogRule, OutputRule
from truetune.checks.rule_runner import choose_rules, run_rules
from truetune.checks.say_remedies_in_words_of_program import say_remedies_in_words_of_program
from truetune.checks.training_settings_in_folder_of_log import (
    read_training_settings_in_folder_of_log,
)
from truetune.errors import UsageError
from truetune.logs.facts_in_files_beside_log import NOTHING_BESIDE, FilesBeside
from truetune.logs.metric_direction import is_share_of_correct
from truetune.logs.parse_printed_records import read_console_pieces
from truetune.logs.read_run_log import read_run
from truetune.logs.rows_and_steps_of_sibling_runs import (
    count_rows_seen,
    find_sibling_runs,
    rows_per_full_step_as_text,
)
from truetune.logs.run_log import RunLog
from truetune.logs.run_log_builder import RunLogBuilder
from truetune.logs.share_of_time_beside_training import (
    measure_time_shares,
    step_seconds_without_evaluations,
)
from truetune.settings.read_truetune_settings import validate_settings
from truetune.settings.run_spec import RunSpec

KIND_NAMES = {
    "language": "language modelling",
    "preference": "preferences",
    "reward": "reward model",
    "reinforcement": "reinforcement (rules on losses don't apply)",
}


JUDGED_CURVES = frozenset({
    "nan_iterations",
    "loss", "eval_loss", "loss_scale", "learning_rate", "grad_norm", "epoch", "num_tokens", "wall_time",
    "tokens_per_second", "train_tokens_per_second",
    "rewards/margins", "rewards/accuracies", "eval_rewards/accuracies", "rewards/chosen", "rewards/rejected",
    "logps/chosen", "logps/rejected", "reward", "reward_std", "eval_reward", "frac_reward_zero_std",
    "objective/scores_margin", "critic/advantages/min", "critic/advantages/max", "completions/clipped_ratio",
    "completions/ended", "completions/mean_terminated_length", "completions/mean_length", "completion_length",
    "eval_runtime", "eval_samples_per_second", "min_reward", "max_reward", "memory",
    "log_odds_chosen", "nll_loss", "mean_token_accuracy",
    "eval_mean_token_accuracy", "objective/kl", "objective/scores", "kl", "entropy", "actor/entropy",
    "actor/entropy_loss", "policy/entropy_avg", "completions/num_eos_tokens",
    "tools/failure_frequency", "tools/call_frequency", "num_turns/mean", "advantages/min", "advantages/max",
    "advantage/all/min", "advantage/all/max", "critic/vf_explained_var", "prompt_length/clip_ratio", "step_time",
    "timing/step", "timing_s/step", "learning_rate_multiplier", *CLIPPED_SHARES, *IMPORTANCE_RATIOS,
    *SAMPLER_DIFFERENCES, SAMPLER_CORRELATION,
})  # fmt: skip
"""What the rules on logs read, by name"""
COUNTER_CURVES = frozenset(
    {
        "step",
        "total_flos",
        "train_runtime",
        "train_loss",
        "eval_samples_per_second",
        "eval_steps_per_second",
        "train_samples_per_second",
        "train_steps_per_second",
    }
)
"""Counts and times of a run: nothing of them is right or wrong"""
CLASS_METRIC = re.compile(
    r"(?:^|[_/])(?:f1|precision|recall|matthews\w*|mcc|auc|roc_auc)(?:$|[_/])"
)
# Chosen, not measured: quicker steps are seldom what a user wonders about.
SLOW_STEP_S = 10.0
"""From here on the seconds of a step are worth a word"""
WORTH_A_WORD = 0.1
"""Share of the time that is no training, from which on it is told"""
PART_PREFIXES = ("rewards/",)
# `rewards/format/mean` is one of the rewards whose sum is judged.
"""Parts of what a rule reads as a whole"""


def diagnose(
    path: str | PathLike[str],
    *,
    spec: RunSpec | None = None,
    files_beside: FilesBeside = NOTHING_BESIDE,
    **settings: Any,
) -> Report:
    """Look at the log of a run: its folder, a checkpoint in it, or a log file.

    `files_beside` is what scripts, settings and other logs say that were given with it. `settings` are fields of
    RunSpec; with `data` and `tokenizer` the losses are compared with what the data allow, and the answers of the data
    are counted: a loss near zero is no wonder where they are all alike. Raises DataError where there is no log to
    read, UsageError where `spec` and settings are both given.
    """
    started = time.perf_counter()
    if spec is not None and settings:
        raise UsageError("give a spec or settings, not both")
    spec = spec or validate_settings(settings, "diagnose()")
    log = read_run(path)
    with_data = bool(spec.data and (spec.tokenizer or spec.model))
    reading = (
        read_data_for_loss_floor(spec, choose_rules(spec, FewDistinctAnswers))
        if with_data
        else None
    )
    log = replace(
        log,
        facts=_given_and_logged_settings(spec, log),
        beside=find_sibling_runs(log),
        files_beside=_files_beside_log(files_beside, log, Path(path)),
        data=reading.facts if reading is not None else None,
    )
    of_log = run_rules(log, choose_rules(spec, LogRule))
    of_log = replace(of_log, findings=say_remedies_in_words_of_program(of_log.findings, log))
    judgement = of_log if reading is None else Judgement.of((of_log, reading.judgement))
    facts = tuple(_log_facts(log))
    lacking = list(_notice_of_curves_without_rules(log))
    if spec.data and not with_data:
        unread = NotJudged(
            "the data",
            "there is no tokenizer to read them with",
            unlock="name a tokenizer with -t",
        )
        lacking.insert(0, unread)
    return Report(
        spec=spec,
        subjects=(Subject("run log", str(path), facts, log),),
        findings=judgement.findings,
        examined=judgement.examined,
        not_judged=(*lacking, *judgement.not_judged),
        seconds=time.perf_counter() - started,
    )


def _files_beside_log(given: FilesBeside, log: RunLog, path: Path) -> FilesBeside:
    """The files that were given with a log; if none were, what the files in its own folder set, for
    a log may be named alone.
    """
    if given is not NOTHING_BESIDE or not log.curve("loss"):
        return given
    return read_training_settings_in_folder_of_log(path)


def diagnose_end_of_command(
    text: str, command: str, code: int, *, spec: RunSpec, seen: bool = True
) -> Report:
    """What ended a command.

    Args:
        text: the tracebacks that its processes left, in their order, else what was printed last; may be empty.
        command: as it was started.
        code: its exit code.
        spec: which rules are chosen.
        seen: was a batch of its run judged? Else the report says that none was.
    """
    started = time.perf_counter()
    log_builder = RunLogBuilder(command, "printed output")
    # The exit code goes through the same reader as the output: rules on ends of processes know one form of log alone.
    lines = [*text.splitlines(), f"exit code {code}"]
    read_console_pieces(
        ((line, number) for number, line in enumerate(lines, 1)),
        "the command's processes",
        log_builder,
    )
    log = log_builder.build()
    judgement = run_rules(log, choose_rules(spec, OutputRule))
    facts = (("ended with", f"exit code {code}"),)
    return Report(
        spec=spec,
        subjects=(Subject("command", command, facts, log),),
        findings=judgement.findings,
        examined=judgement.examined,
        not_judged=(
            ()
            if seen
            else (NotJudged("the run", f"it ended with exit code {code} before a batch was seen"),)
        ),
        seconds=time.perf_counter() - started,
    )


def _notice_of_curves_without_rules(log: RunLog) -> Iterator[NotJudged]:
    """One line that names all curves about which there is no rule: "no findings" must not seem to
    cover them.
    """
    others = _names_of_unjudged_curves(log)
    if others:
        yield NotJudged(
            f"curves: {', '.join(others)}",
            f"no rule is about {'it' if len(others) == 1 else 'them'}",
            unlock="see them on the page (--html)",
            asked=False,
        )


def _names_of_unjudged_curves(log: RunLog) -> list[str]:
    """The names of the curves that a page draws and no rule judges."""
    read = (*JUDGED_CURVES, *COUNTER_CURVES)
    return sorted(
        name
        for name, curve in log.curves.items()
        if curve
        and name not in read
        and not name.startswith(PART_PREFIXES)
        and not is_share_of_correct(name)
    )


def _given_and_logged_settings(spec: RunSpec, log: RunLog) -> dict[str, object]:
    """Settings that the caller gave, and the log's own over them."""
    settings = {name: getattr(spec.training, name) for name in spec.training.model_fields_set}
    return {**{name: value for name, value in settings.items() if value is not None}, **log.facts}


def _log_facts(log: RunLog) -> Iterator[tuple[str, str]]:
    """Short facts on a log, by name."""
    yield "written by", log.format
    if log.inference_server_name:
        yield (
            "serves",
            f"requests, with {log.inference_server_name}: this is the log of a server, not of a training",
        )
    elif any(log.curves.values()):
        yield from _facts_of_training(log)
    else:
        yield "records of a training", "none"
    if log.output is not None:
        yield "output", f"{log.output.lines:,} lines of {log.output.file}"
    for name in ("eval_loss", "learning_rate", "grad_norm"):
        logged = log.curve(name)
        curve = logged.finite()
        if curve:
            yield name, f"between {curve.value.min():.3g} and {curve.value.max():.3g}"
        elif logged:
            yield name, f"not a number in any of {logged.step.size:,} records"
    if len(log.parts) > 1:
        yield "written in", f"{len(log.parts)} parts"
    if log.checkpoints:
        yield "checkpoints", ", ".join(f"{step}" for step in log.checkpoints[-5:])
    if log.data is not None:
        yield (
            "entropy of the supervised tokens",
            f"{log.data.unigram:.3g} nats/token over {log.data.rows:,} rows",
        )
        yield "loss of knowing the answers alone", f"{log.data.answer:.3g}"
    for note in log.notes:
        yield "left out", note


def _is_language_model_training(log: RunLog) -> bool:
    """Does a log show that a model of language is trained, and no table of times alone?"""
    return bool(log.curve("loss") or log.curve("eval_loss") or log.output is not None)


def _may_be_classification(log: RunLog) -> bool:
    """Does an evaluation count classes (F1, precision, recall), so that the loss may be that of a classifier?"""
    is_class_known = isinstance(log.facts.get("architectures"), list)
    return not is_class_known and any(CLASS_METRIC.search(name) for name in log.curves)


def _facts_of_training(log: RunLog) -> Iterator[tuple[str, str]]:
    """Short facts on a training: what was trained, how many steps, and the loss."""
    classes = log.facts.get("architectures")
    if log.kind == "language" and not log.is_loss_of_token_prediction and isinstance(classes, list):
        yield "trains", ", ".join(map(str, classes))
    elif log.kind != "language" or (
        _is_language_model_training(log) and not _may_be_classification(log)
    ):
        yield "trains", KIND_NAMES[log.kind]
    yield "steps", _describe_progress(log)
    yield from _facts_of_steps(log)
    if log.epochs_at_end:
        yield "epochs", f"{log.epochs_at_end:.3g}"
    yield "loss", _first_and_last_loss_in_words(log)


def _describe_progress(log: RunLog) -> str:
    """How far the run came. Records without steps are not taken for steps: many trainers log each tenth."""
    total = log.planned_steps
    planned = total or (log.output.total if log.output is not None else 0)
    if log.is_numbered:
        records = f"not logged: {log.last_step:,.0f} records without a step"
        # A bar that stands below the number of records is that of an evaluation.
        is_training = log.output is not None and log.output.done >= log.last_step
        planned = total or (planned if is_training else 0)
        return records + (f", of a run of {planned:,.0f} steps" if planned else "")
    return f"{log.done_steps:,.0f}" + (f" of {total:,.0f}" if total else "")


def _facts_of_steps(log: RunLog) -> Iterator[tuple[str, str]]:
    """Short facts on an optimizer step: its rows, and its seconds if it is slow."""
    rows = count_rows_seen(log)
    a_step = log.output.settings.rows_a_step if log.output is not None else None
    if a_step:
        yield "an optimizer step has", f"{a_step:,} rows, as the trainer counts them"
    elif rows and log.done_steps and not log.is_numbered:
        unit = unit_of_rows(is_packed=counts_packed_sequences(log))
        yield (
            "an optimizer step has",
            # The rate is printed with three digits: the product is no count of rows.
            f"{rows_per_full_step_as_text(rows, log.done_steps, log.epochs_at_end)} {unit}"
            f" ({float(f'{rows:.3g}'):,.0f} in {log.done_steps:,.0f} optimizer"
            " steps, by the printed rate)",
        )
    shares = measure_time_shares(log)
    seconds = step_seconds_without_evaluations(log)
    if seconds is not None and seconds > SLOW_STEP_S:
        yield "a step takes", f"{seconds:.0f} s"
    if shares is not None and shares.share >= WORTH_A_WORD:
        what = " and ".join(shares.kinds)
        alone = f"; a step alone takes {shares.step_seconds:.3g} s" if shares.step_seconds else ""
        yield "time", f"{shares.share:.0%} of it for {what}{alone}"


def _first_and_last_loss_in_words(log: RunLog) -> str:
    """The first and the last loss, or why there is none."""
    loss = log.curve("loss")
    finite = loss.finite()
    if finite:
        return f"{finite.value[0]:.4g} to {finite.value[-1]:.4g} in {loss.step.size:,} records"
    if loss:
        return f"not a number in any of {loss.step.size:,} records"
    return "not logged: rules on it have nothing to look at"
