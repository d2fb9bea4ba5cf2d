"""causes: what makes a finished model answer as it does, by the rules on its inquest and on its files."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from truetune.checks.cause.rivals import report_rivals
from truetune.checks.findings import RANK, Finding, in_order
from truetune.checks.inspect_checkpoint import checkpoint_report
from truetune.checks.judgement import Judgement
from truetune.checks.rule import CauseRule
from truetune.checks.rule_runner import choose_rules, run_rules
from truetune.errors import TruetuneError
from truetune.generation.model_evidence import ModelEvidence
from truetune.spec.run import RunSpec

NO_CAUSES = (
    "weights-are-pickle", "use-cache-saved-off", "resume-state-missing", "dtype-differs-from-config",
    "norms-never-moved", "sampling-defaults-from-generation-config",
)  # fmt: skip
"""Rules on the files that say nothing on the answers"""
FILES = {
    "trained-stop-not-served": {"trained-stop-not-in-generation-config"},
    "prompt-is-not-the-trained-one": {"prompts-differ-from-training"},
    "adapter-without-effect-on-answers": {
        "adapter-keys-do-not-match", "weights-all-zero", "adapter-file-empty", "weights-file-broken",
        "zero3-shards-saved-as-empty-tensors", "weights-changed-since-training",
    },
    "worse-than-its-base": {
        "adapter-on-another-base", "adapter-rank-differs", "weights-changed-since-training", "nan-in-weights",
        "tensors-missing", "weights-file-broken", "tied-embeddings-lost-on-merge", "merge-is-not-base-plus-adapter",
    },
    "model-is-the-base": {"weights-equal-the-base"},
    "no-language-left": {
        "nan-in-weights", "weights-all-zero", "tensors-missing", "weights-file-broken", "adapter-on-another-base",
        "weights-changed-since-training", "tokenizer-differs-from-base",
    },
}  # fmt: skip
"""A cause -> the rules on the files that say what it comes from"""
STOPS = {"trained-stop-not-served", "trained-stop-not-in-generation-config"}
ROOTS = {*FILES, *(name for names in FILES.values() for name in names), "base-is-broken"} - STOPS
CONSEQUENCES = ("stopping-never-learned", "stop-learned-but-not-reached")
"""Not said where a root is: under another prompt, or without the adapter, nothing has been learned"""


DRAWN = "temperature-is-too-high"
DRAWN_BADLY = (
    "answers-are-garbage", "answers-have-faults", "answers-never-stop", "answers-change-language",
    "answers-are-too-long", "role-markers-in-answers",
)  # fmt: skip
"""Symptoms whose remedies are wrong where the temperature is the cause"""
EXPLAINED = ("answers-never-stop", "role-markers-in-answers")
"""Symptoms whose remedy (train the stop token) is wrong where a root or an unserved stop is the cause"""


def explained(symptom: Finding, causes: Iterable[Finding]) -> bool:
    """Does a cause say what this comes from?"""
    if symptom.rule in DRAWN_BADLY and any(cause.rule == DRAWN for cause in causes):
        return True
    return symptom.rule in EXPLAINED and any(cause.rule in ROOTS | STOPS for cause in causes)


def causes_of(inquest: ModelEvidence, spec: RunSpec | None = None) -> Judgement:
    """What the rules that `spec` selects say; what two of them find is said once, by the one that looked at the files.

    The other's message becomes its evidence.
    """
    spec = spec or RunSpec()
    judged = run_rules(inquest, choose_rules(spec, CauseRule))
    files = _of_files(inquest, spec)
    said = {finding.rule for finding in (*judged.findings, *files)}
    rivals = report_rivals(inquest)
    kept = [
        replace(finding, evidence=(*finding.evidence, *rivals))
        for finding in judged.findings
        if not _told(finding.rule, said)
    ]
    return replace(
        judged, findings=in_order([*kept, *(_with(finding, judged.findings) for finding in files)])
    )


def _told(name: str, said: Collection[str]) -> bool:
    return bool(FILES.get(name, set()) & set(said)) or (
        name in CONSEQUENCES and bool((ROOTS | {DRAWN}) & set(said))
    )


def _with(file: Finding, measured: Iterable[Finding]) -> Finding:
    """A finding on the files, with what was measured of the same cause."""
    more = [finding.message for finding in measured if file.rule in FILES.get(finding.rule, ())]
    return replace(file, evidence=(*file.evidence, *more)) if more else file


def _of_files(inquest: ModelEvidence, spec: RunSpec) -> list[Finding]:
    if inquest.folder is None or inquest.kind not in ("model", "adapter"):
        return []
    try:
        report = checkpoint_report(inquest.folder, base=inquest.base_folder, spec=spec)
    except TruetuneError:
        return []
    return [
        finding
        for finding in report.findings
        if finding.rule not in NO_CAUSES and RANK[finding.severity] >= RANK["warning"]
    ]
