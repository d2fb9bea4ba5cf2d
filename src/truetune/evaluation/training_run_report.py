"""One training run, or two side by side, as a report: its curves, its findings at their steps, and answers as they
changed.

Drawing code gets plain values that are small enough for a page: curves are thinned and smoothed here, numbers have five
digits, and of very many sampling passes some are kept with their answers. The trade-off: the page shows the run's shape
and not each record, which the log still has.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from statistics import fmean, median
from typing import Any

from truetune.checks.findings import sort_findings
from truetune.checks.judgement import Judgement
from truetune.checks.reports import Report, Subject
from truetune.checks.rule_catalogue import select_rules
from truetune.evaluation.open_training_run_folder import RunFolder, open_run, run_folder_of_log
from truetune.evaluation.sample_report import Success, sample_as_plain_values
from truetune.evaluation.summarize_training_run_in_words import (
    list_facts,
    list_settings,
    summarize_run,
)
from truetune.generation.answer_samples import SamplingPass, Scores
from truetune.logs.downsample_curve_keeping_extremes import downsample_curve, smooth_curve
from truetune.logs.run_log import Curve
from truetune.settings.run_spec import RunSpec

ANSWER_PREFIX = "answers/"
MEAN_SCORES = (
    "stopped",
    "looped",
    "echoed",
    "empty",
    "garbage",
    "switched",
    "overlap",
    "exact",
    "parsed",
    "agrees",
    "repetition",
)
"""Scores whose mean over the prompts is a curve"""
# The others (versions, devices, settings) have a table of their own.
SUBJECT_FACTS = ("status", "method", "base model", "data", "steps", "log", "left out", "notes")
"""Facts that stand beside the verdict"""
# Chosen, not measured: sixty passes of twenty answers are a page of a few megabytes; a slider of more steps is not
# moved through one by one.
MAX_PASSES = 60
"""At most so many passes are kept with their answers"""
# Chosen, not measured: a step of a training by rewards has several times as many answers as a pass.
MAX_ROLLOUTS = 12
"""At most so many steps of a training by rewards are kept with the answers that it learned from"""
# A curve is drawn on about a thousand pixels: four digits would show as steps where a loss is flat, more are unseen.
DIGITS = 5
"""Of a number in a curve"""


@dataclass(frozen=True, kw_only=True, repr=False)
class RunReport(Report):
    """What is known of one run, or of two."""

    runs: tuple[RunFolder, ...]
    names: tuple[str, ...]
    """The shortest that tell them apart"""

    def more(self) -> dict[str, Any]:
        """What a JSON report of runs has besides that of every report."""
        named_runs = list(zip(self.runs, self.names, strict=True))
        # One run needs no name in its sentence.
        sentences = (
            summarize_run(run, name if len(named_runs) > 1 else "") for run, name in named_runs
        )
        return {
            "verdict": " ".join(sentences),
            "runs": [_run_values(run, name) for run, name in named_runs],
        }


def build_run_report(paths: Sequence[str], spec: RunSpec) -> RunReport:
    """The report on one or two runs.

    Args:
        paths: their folders or logs.
        spec: selects the rules.

    Raises:
        UsageError, DataError: as `open_run`.
    """
    started = time.perf_counter()
    runs = tuple(open_run(path, spec) for path in paths)
    names = shortest_distinguishing_path_ends(paths)
    # Findings of both stand in one list.
    if len(runs) > 1:
        runs = tuple(
            _label_findings_with_run(run, name) for run, name in zip(runs, names, strict=True)
        )
    judgement = Judgement.of(run.judgement for run in runs)
    return RunReport(
        spec=spec,
        subjects=tuple(_describe_run(run) for run in runs),
        findings=sort_findings(dated.finding for run in runs for dated in run.findings),
        examined=judgement.examined,
        not_judged=judgement.not_judged,
        seconds=time.perf_counter() - started,
        runs=runs,
        names=names,
    )


def _describe_run(run: RunFolder) -> Subject:
    """The facts that stand beside the verdict."""
    brief = ((name, fact) for name, fact in list_facts(run).items() if name in SUBJECT_FACTS)
    return Subject("run", run.path, tuple(brief))


def page_values_of_only_log(report: Report) -> dict[str, Any]:
    """What the page of a run shows, as plain values, of the one log that a report has read, with
    that log's findings; empty where it has read none or several.
    """
    logs = [(subject.path, subject.log) for subject in report.subjects if subject.log]
    if len(logs) != 1:
        return {}
    path, log = logs[0]
    # A report may have findings on data and settings as well, which are at no step.
    log_rules = {rule.name() for rule in select_rules((), (), "log")}
    findings = (finding for finding in report.findings if finding.rule in log_rules)
    run = run_folder_of_log(path, log, findings)
    return {
        "verdict": summarize_run(run),
        "runs": [_run_values(run, *shortest_distinguishing_path_ends([path]))],
    }


def _label_findings_with_run(run: RunFolder, name: str) -> RunFolder:
    """The run, each of whose findings says whose it is."""
    named = []
    for dated in run.findings:
        evidence = (f"run: {name}", *dated.finding.evidence)
        named.append(replace(dated, finding=replace(dated.finding, evidence=evidence)))
    return replace(run, findings=tuple(named))


def shortest_distinguishing_path_ends(paths: Sequence[str]) -> tuple[str, ...]:
    """The last parts of the paths, as many as tell them apart; equal paths are numbered."""
    reversed_parts = [PurePath(path).parts[::-1] for path in paths]
    longest = max(map(len, reversed_parts), default=0)
    for length in range(1, longest + 1):
        names = tuple("/".join(parts[:length][::-1]) for parts in reversed_parts)
        if len(set(names)) == len(names):
            return names
    return tuple(f"{path} ({number})" for number, path in enumerate(paths, 1))


def _run_values(run: RunFolder, name: str) -> dict[str, Any]:
    """A run as plain values: facts, settings, curves, findings at their steps, answers."""
    log, kept = run.log, _spread_passes(run.looks, MAX_PASSES)
    steps = (
        log.last_step
        if log
        else max((sampling_pass.step for sampling_pass, _ in run.looks), default=0)
    )
    return {
        "name": name,
        "path": run.path,
        "steps": steps,
        "facts": list_facts(run),
        "settings": list_settings(run),
        "curves": {
            title: _thinned_and_smoothed_curve(curve)
            for title, curve in collect_curves(run).items()
        },
        "pins": [
            {
                "step": dated.step,
                "code": dated.finding.code,
                "rule": dated.finding.rule,
                "severity": dated.finding.severity,
                "message": dated.finding.message,
            }
            for dated in run.findings
        ],
        "looks": [_pass_values(sampling_pass, limit) for sampling_pass, limit in kept],
        "looks_left_out": len(run.looks) - len(kept),
        "rollouts": [_pass_values(*one) for one in _spread_passes(run.rollouts, MAX_ROLLOUTS)],
    }


def collect_curves(run: RunFolder) -> dict[str, Curve]:
    """All that was logged, and the scores of the passes; tokens a second where the log allows to tell."""
    curves = dict(run.log.curves) if run.log else {}
    # A straight line of the step.
    curves.pop("epoch", None)
    if "tokens_per_second" not in curves:
        speed = _tokens_per_second(curves)
        if speed:
            curves["tokens_per_second"] = speed
    scores = [
        (sampling_pass.step, _averages_of_pass(sampling_pass)) for sampling_pass, _ in run.looks
    ]
    names = dict.fromkeys(name for _, of_pass in scores for name in of_pass)
    for name in names:
        points = [(float(step), of_pass[name]) for step, of_pass in scores if name in of_pass]
        curves[ANSWER_PREFIX + name] = _make_curve(points)
    return curves


def _averages_of_pass(sampling_pass: SamplingPass) -> dict[str, float]:
    """Means over the prompts for which there is such a score, medians of P(stop) and of lengths."""
    scores = [sample.scores for sample in sampling_pass.samples]
    averages: dict[str, float] = {}
    for name in MEAN_SCORES:
        values = _known_numbers(getattr(score, name) for score in scores)
        if values:
            averages[name] = fmean(values)
    if scores:
        averages["markers"] = fmean(bool(score.markers) for score in scores)
    # Medians: one answer that runs to the limit would move a mean for all.
    ratios = _known_numbers(score.length_ratio for score in scores)
    if ratios:
        averages["length_ratio"] = median(ratios)
    probabilities = _known_numbers(
        sample.answer.stop_probability for sample in sampling_pass.samples
    )
    if probabilities:
        averages["stop_probability"] = median(probabilities)
    return averages


def _known_numbers(values: Iterable[float | None]) -> list[float]:
    """Those of some values that are there, as numbers."""
    return [float(value) for value in values if value is not None]


def _tokens_per_second(logged: Mapping[str, Curve]) -> Curve | None:
    """Of tokens and the clock, where both were logged; a pause (a pass, a checkpoint) counts."""
    tokens, clock = logged.get("num_tokens"), logged.get("wall_time")
    if not tokens or not clock or tokens.step.size < 2:
        return None
    times = clock.at(tokens.step)
    seconds, counts = times[1:] - times[:-1], tokens.value[1:] - tokens.value[:-1]
    # A run that was resumed begins to count again.
    keep = (seconds > 0) & (counts > 0)
    return Curve(tokens.step[1:][keep], counts[keep] / seconds[keep])


def _make_curve(points: Sequence[tuple[float, float]]) -> Curve:
    """A curve of (step, value)."""
    import numpy as np

    return Curve(np.array([x for x, _ in points]), np.array([y for _, y in points]))


def _thinned_and_smoothed_curve(curve: Curve) -> dict[str, Any]:
    """A curve for a page: as many points as can be seen, and the same smoothed."""
    thin, smooth = downsample_curve(curve), smooth_curve(curve)
    return {
        "points": curve.step.size,
        "x": [_round_number_or_none(x) for x in thin.step.tolist()],
        "y": [_round_number_or_none(y) for y in thin.value.tolist()],
        "smooth": {
            "x": [_round_number_or_none(x) for x in smooth.step.tolist()],
            "y": [_round_number_or_none(y) for y in smooth.value.tolist()],
        },
    }


def _round_number_or_none(value: float) -> float | None:
    """In few digits; None where it is no number."""
    if not math.isfinite(value):
        return None
    # A step number must stay whole; from 2^53 on a float has no last digit anyway.
    if value.is_integer() and abs(value) < 1 << 53:
        return int(value)
    return float(f"{value:.{DIGITS}g}")


def _spread_passes(
    passes: Sequence[tuple[SamplingPass, int]], most: int
) -> list[tuple[SamplingPass, int]]:
    """The passes whose answers are kept: the first, the last, and as many between as there may be."""
    last = len(passes) - 1
    if last < most:
        return list(passes)
    return [passes[last * number // (most - 1)] for number in range(most)]


def _pass_values(sampling_pass: SamplingPass, limit: int) -> dict[str, Any]:
    """A pass as plain values, without token ids: a page does not show them."""
    samples = []
    for sample in sampling_pass.samples:
        values = sample_as_plain_values(sample, limit)
        shown = {name: value for name, value in values.items() if not name.endswith("_ids")}
        samples.append(shown | _reward_values(sample.scores))
    return {
        "step": sampling_pass.step,
        "limit": limit,
        "seconds": sampling_pass.seconds,
        "success": vars(Success.of_pass(sampling_pass, limit)),
        "samples": samples,
    }


def _reward_values(scores: Scores) -> dict[str, float]:
    """What an answer was rewarded by; empty of answers that no training by rewards has sampled."""
    values = {"reward": scores.reward, "advantage": scores.advantage}
    return {name: value for name, value in values.items() if value is not None}
