"""diagnose: what the log of a run says about it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from os import PathLike
from typing import Any

from truetune.checks.catalogue import choose
from truetune.checks.floor import floor_of
from truetune.checks.judgement import NotJudged, judge
from truetune.checks.report import Report, Subject
from truetune.checks.rule import LogRule
from truetune.errors import UsageError
from truetune.logs.log import RunLog
from truetune.logs.read import read_run
from truetune.spec.files import spec_of
from truetune.spec.run import RunSpec

KINDS = {
    "language": "language modelling",
    "preference": "preferences",
    "reward": "reward model",
    "reinforcement": "reinforcement (rules on losses don't apply)",
}


def diagnose(path: str | PathLike[str], *, spec: RunSpec | None = None, **settings: Any) -> Report:
    """Look at the log of a run: its folder, a checkpoint in it, or a log file.

    `settings` are fields of RunSpec; with `data` and `tokenizer` the losses are compared with what the data allow.
    Raises DataError where there is no log to read, UsageError where `spec` and settings are both given.
    """
    started = time.perf_counter()
    if spec is not None and settings:
        raise UsageError("give a spec or settings, not both")
    spec = spec or spec_of(settings, "diagnose()")
    log = read_run(path)
    with_data = bool(spec.data and (spec.tokenizer or spec.model))
    log = replace(log, facts=_known(spec, log), data=floor_of(spec) if with_data else None)
    judged = judge([rule for rule in choose(spec.select, spec.ignore, "log") if issubclass(rule, LogRule)], log)
    facts = tuple(_facts(log))
    lacking: tuple[NotJudged, ...] = ()
    if spec.data and not with_data:
        lacking = (NotJudged("the data", "there is no tokenizer to read them with", unlock="name a tokenizer with -t"),)
    return Report(
        spec=spec,
        subjects=(Subject("run log", str(path), facts, log),),
        findings=judged.findings,
        examined=judged.examined,
        not_judged=(*lacking, *judged.not_judged),
        seconds=time.perf_counter() - started,
    )


def _known(spec: RunSpec, log: RunLog) -> dict[str, object]:
    """Settings that the caller gave, and the log's own over them."""
    given = {name: getattr(spec.training, name) for name in spec.training.model_fields_set}
    return {**{name: value for name, value in given.items() if value is not None}, **log.facts}


def _facts(log: RunLog) -> Iterator[tuple[str, str]]:
    loss = log.curve("loss")
    yield "written by", log.format
    yield "trains", KINDS[log.kind]
    total = log.total_steps
    yield "steps", f"{log.last_step:,.0f}" + (f" of {total:,.0f}" if total else "")
    if log.epochs:
        yield "epochs", f"{log.epochs:.3g}"
    finite = loss.finite()
    if finite:
        yield "loss", f"{finite.value[0]:.4g} to {finite.value[-1]:.4g} in {loss.step.size:,} records"
    else:
        yield "loss", "not logged: rules on it have nothing to look at"
    for name in ("eval_loss", "learning_rate", "grad_norm"):
        curve = log.curve(name).finite()
        if curve:
            yield name, f"between {curve.value.min():.3g} and {curve.value.max():.3g}"
    if len(log.parts) > 1:
        yield "written in", f"{len(log.parts)} parts"
    if log.checkpoints:
        yield "checkpoints", ", ".join(f"{step}" for step in log.checkpoints[-5:])
    if log.data is not None:
        yield "entropy of the supervised tokens", f"{log.data.unigram:.3g} nats a token over {log.data.rows:,} rows"
        yield "loss of knowing the answers alone", f"{log.data.answer:.3g}"
    for note in log.notes:
        yield "left out", note
