"""RunReport: one run, or two side by side, as a report."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from statistics import fmean, median
from typing import Any

from truetune.checks.catalogue import choose
from truetune.checks.findings import in_order
from truetune.checks.judgement import Judgement
from truetune.checks.reports import Report, Subject
from truetune.evaluation.report import Success, plain
from truetune.evaluation.run_facts import facts, sentence, settings
from truetune.evaluation.run_folder import RunFolder, logged_run, open_run
from truetune.generation.answer_samples import SamplingPass
from truetune.logs.log import Curve
from truetune.logs.thin import smoothed, thinned
from truetune.spec.run import RunSpec

ANSWERS = "answers/"
SHARES = (
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
BRIEF = ("status", "method", "base model", "data", "steps", "log", "left out", "notes")
"""Facts that stand beside the verdict"""
LOOKS = 60
"""At most so many looks are kept with their answers"""
DIGITS = 5
"""Of a number in a curve"""


@dataclass(frozen=True, kw_only=True, repr=False)
class RunReport(Report):
    """What is known of one run, or of two."""

    runs: tuple[RunFolder, ...]
    names: tuple[str, ...]
    """The shortest that tell them apart"""

    def more(self) -> dict[str, Any]:
        named = list(zip(self.runs, self.names, strict=True))
        return {
            "verdict": " ".join(
                sentence(run, name if len(named) > 1 else "") for run, name in named
            ),
            "runs": [_plain(run, name) for run, name in named],
        }


def run_report(paths: Sequence[str], spec: RunSpec) -> RunReport:
    """Of the folders or logs of one or two runs. Raises what `open_run` raises."""
    started = time.perf_counter()
    runs, names = tuple(open_run(path, spec) for path in paths), named(paths)
    if len(runs) > 1:
        runs = tuple(_signed(run, name) for run, name in zip(runs, names, strict=True))
    judged = Judgement.of(run.judged for run in runs)
    return RunReport(
        spec=spec,
        subjects=tuple(
            Subject("run", run.path, tuple((k, v) for k, v in facts(run).items() if k in BRIEF))
            for run in runs
        ),
        findings=in_order(found.finding for run in runs for found in run.found),
        examined=judged.examined,
        not_judged=judged.not_judged,
        seconds=time.perf_counter() - started,
        runs=runs,
        names=names,
    )


def of_log(report: Report) -> dict[str, Any]:
    """The same of the one log that a report has looked at, with its own findings; of none or several, nothing."""
    logs = [(subject.path, subject.log) for subject in report.subjects if subject.log]
    if len(logs) != 1:
        return {}
    (path, log), rules = logs[0], {rule.name() for rule in choose((), (), "log")}
    run = logged_run(path, log, (finding for finding in report.findings if finding.rule in rules))
    return {"verdict": sentence(run), "runs": [_plain(run, *named([path]))]}


def _signed(run: RunFolder, name: str) -> RunFolder:
    """Each finding says whose it is."""
    signed = ((one, (f"run: {name}", *one.finding.evidence)) for one in run.found)
    return replace(
        run,
        found=tuple(
            replace(one, finding=replace(one.finding, evidence=said)) for one, said in signed
        ),
    )


def named(paths: Sequence[str]) -> tuple[str, ...]:
    """The last parts of the paths, as many as tell them apart."""
    parts = [PurePath(path).parts[::-1] for path in paths]
    for length in range(1, 1 + max(map(len, parts), default=0)):
        names = tuple("/".join(part[:length][::-1]) for part in parts)
        if len(set(names)) == len(names):
            return names
    return tuple(f"{path} ({number})" for number, path in enumerate(paths, 1))


def _plain(run: RunFolder, name: str) -> dict[str, Any]:
    log, kept = run.log, _passes_with_answers(run)
    return {
        "name": name,
        "path": run.path,
        "steps": log.last_step if log else max((look.step for look, _ in run.looks), default=0),
        "facts": facts(run),
        "settings": settings(run),
        "curves": {title: _curve(curve) for title, curve in curves(run).items()},
        "pins": [
            {"step": found.step}
            | {key: getattr(found.finding, key) for key in ("code", "rule", "severity", "message")}
            for found in run.found
        ],
        "looks": [_look(look, limit) for look, limit in kept],
        "looks_left_out": len(run.looks) - len(kept),
    }


def curves(run: RunFolder) -> dict[str, Curve]:
    """All that was logged, and the scores of the looks; tokens a second where the log allows to tell."""
    made = dict(run.log.curves) if run.log else {}
    made.pop("epoch", None)
    if "tokens_per_second" not in made and (speed := _speed(made)):
        made["tokens_per_second"] = speed
    scores = [(look.step, _scores(look)) for look, _ in run.looks]
    for name in dict.fromkeys(name for _, found in scores for name in found):
        known = [(float(step), found[name]) for step, found in scores if name in found]
        made[ANSWERS + name] = _points(known)
    return made


def _scores(look: SamplingPass) -> dict[str, float]:
    """Means over the prompts for which there is such a score, medians of P(stop) and of lengths."""
    scores = [sample.scores for sample in look.samples]
    known = {
        name: [float(v) for score in scores if (v := getattr(score, name)) is not None]
        for name in SHARES
    }
    found = {name: fmean(values) for name, values in known.items() if values}
    if scores:
        found["markers"] = fmean(bool(score.markers) for score in scores)
    if ratios := [score.length_ratio for score in scores if score.length_ratio is not None]:
        found["length_ratio"] = median(ratios)
    if stops := [p for sample in look.samples if (p := sample.answer.stop_probability) is not None]:
        found["stop_probability"] = median(stops)
    return found


def _speed(logged: Mapping[str, Curve]) -> Curve | None:
    """Of tokens and the clock, where both were logged; a pause (a look, a checkpoint) counts."""
    tokens, clock = (logged.get(name) for name in ("num_tokens", "wall_time"))
    if not tokens or not clock or tokens.step.size < 2:
        return None
    times = clock.at(tokens.step)
    passed, made = times[1:] - times[:-1], tokens.value[1:] - tokens.value[:-1]
    keep = (passed > 0) & (made > 0)
    return Curve(tokens.step[1:][keep], made[keep] / passed[keep])


def _points(points: Sequence[tuple[float, float]]) -> Curve:
    import numpy as np

    return Curve(np.array([x for x, _ in points]), np.array([y for _, y in points]))


def _curve(curve: Curve) -> dict[str, Any]:
    thin, smooth = thinned(curve), smoothed(curve)
    return {
        "points": curve.step.size,
        "x": [_short(x) for x in thin.step.tolist()],
        "y": [_short(y) for y in thin.value.tolist()],
        "smooth": {
            "x": [_short(x) for x in smooth.step.tolist()],
            "y": [_short(y) for y in smooth.value.tolist()],
        },
    }


def _short(value: float) -> float | None:
    """In few digits; None where it is no number."""
    if not math.isfinite(value):
        return None
    return (
        int(value) if value.is_integer() and abs(value) < 1 << 53 else float(f"{value:.{DIGITS}g}")
    )


def _passes_with_answers(run: RunFolder) -> list[tuple[SamplingPass, int]]:
    """The looks whose answers are kept: the first, the last, and as many between as there may be."""
    last = len(run.looks) - 1
    if last < LOOKS:
        return list(run.looks)
    return [run.looks[last * number // (LOOKS - 1)] for number in range(LOOKS)]


def _look(look: SamplingPass, limit: int) -> dict[str, Any]:
    return {
        "step": look.step,
        "limit": limit,
        "seconds": look.seconds,
        "success": vars(Success.of_look(look, limit)),
        "samples": [
            {
                name: value
                for name, value in plain(sample, limit).items()
                if not name.endswith("_ids")
            }
            for sample in look.samples
        ],
    }
