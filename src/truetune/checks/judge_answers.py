"""Judges sampled answers by the rules on answers: those of a run so far, or of one sampling pass of
a finished model.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from truetune.checks.findings import RANK, Finding
from truetune.checks.judgement import Judgement, NotJudged
from truetune.checks.reports import Report, Subject
from truetune.checks.rule import AnswersRule
from truetune.checks.rule_runner import choose_rules, run_rules
from truetune.generation.answer_samples import SampledRun
from truetune.settings.run_spec import RunSpec


def findings_on_sampled_answers(
    watched: SampledRun, spec: RunSpec | None = None
) -> tuple[Finding, ...]:
    """The findings of the rules that `spec` selects on sampled answers; none before the first
    sampling pass.
    """
    return judge_answers(watched, spec).findings


def judge_answers(watched: SampledRun, spec: RunSpec | None = None) -> Judgement:
    """The judgement of the rules that `spec` selects on sampled answers; empty before the first
    sampling pass.
    """
    if not watched.looks:
        return Judgement(not_judged=(NotJudged("answers", "the model was not asked yet"),))
    spec = spec or RunSpec()
    return Judgement.of(
        [
            run_rules(watched, choose_rules(spec, AnswersRule)),
            Judgement(not_judged=_correctness_not_judged(watched)),
        ]
    )


def _correctness_not_judged(watched: SampledRun) -> tuple[NotJudged, ...]:
    """Says that no rule judges how near the answers come to their references: no threshold is
    known.
    """
    scores = [sample.scores for sample in watched.looks[-1].samples]
    known = [score.overlap for score in scores if score.overlap is not None]
    if not known or any(score.parsed is not None for score in scores):
        return ()
    overlap = (
        f"their overlap with {len(known):,} references is {sum(known) / len(known):.2f}, and no"
        " parser is named"
    )
    unlock = "name a parser (--parser), or another model (--against)"
    return (NotJudged("whether the answers are right", overlap, unlock=unlock, asked=False),)


def report_on_answers(watched: SampledRun, spec: RunSpec, path: str) -> Report:
    """The report on sampled answers; `path` is the model or the run that answered."""
    started = time.perf_counter()
    facts = {
        "looks": ", ".join(f"step {look.step:,}" for look in watched.looks),
        "prompts": (
            f"{len(watched.looks[-1].samples)}, at most {watched.limit} new tokens"
            if watched.looks
            else "none"
        ),
        "seconds": f"{sum(look.seconds for look in watched.looks):.1f}",
    }
    judgement = judge_answers(watched, spec)
    return Report(
        spec=spec,
        subjects=(Subject("answers", path, tuple(facts.items())),),
        findings=judgement.findings,
        examined=judgement.examined,
        not_judged=judgement.not_judged,
        seconds=time.perf_counter() - started,
    )


def findings_new_or_worse(findings: Iterable[Finding], known: dict[str, Finding]) -> list[Finding]:
    """The findings that are new, or worse than when they were last in `known`, which is updated.

    Worse is a higher severity, or a share of bad answers that is half as large again.
    """
    fresh = [finding for finding in findings if _is_new_or_worse(finding, known.get(finding.rule))]
    known.update({finding.rule: finding for finding in fresh})
    return fresh


def _is_new_or_worse(now: Finding, before: Finding | None) -> bool:
    """Is a finding new, graver, or about a far larger share?"""
    if before is None or RANK[now.severity] > RANK[before.severity]:
        return True
    counts = now.count, now.total, before.count, before.total
    if RANK[now.severity] < RANK[before.severity] or not all(counts):
        return False
    # Half as large again: chosen, not measured. At less, chance between two samples of 20 answers would be told each
    # time.
    return now.count * before.total >= 1.5 * before.count * now.total  # type: ignore[operator]
