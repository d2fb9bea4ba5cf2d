"""Judges an audit: runs the rules on batches, laws and recitations on what the processes of a starting run recorded."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from truetune.auditing.audit import Audit
from truetune.auditing.build_audit import build_audit
from truetune.checks.batch.evidence.pretokenized_rows_without_labels import (
    note_on_unlabelled_rows_without_prompts,
)
from truetune.checks.judgement import NotJudged
from truetune.checks.reports import AuditReport as AuditReport
from truetune.checks.reports import Subject
from truetune.checks.rule import BatchRule, LawRule, RecitationRule
from truetune.checks.rule_runner import choose_rules, run_rules
from truetune.probe.run_record import Record
from truetune.settings.run_spec import RunSpec


def audit(records: Sequence[Record], spec: RunSpec | None = None) -> AuditReport:
    """Judge what the processes of a run recorded. Raises TokenizerError or TemplateError where theirs can't be read."""
    started = time.perf_counter()
    spec = spec or RunSpec()
    subject = build_audit(records, spec)
    judgement = run_rules(subject, choose_rules(spec, BatchRule, LawRule, RecitationRule))
    return AuditReport(
        spec=spec,
        subjects=(
            Subject(
                "training run",
                str(subject.facts["trainer"]["class"] or "own loop"),
                _audit_facts(subject),
            ),
        ),
        findings=judgement.findings,
        examined=judgement.examined,
        not_judged=(*_unfinished_audits(records), *judgement.not_judged),
        ledger=subject.ledger,
        padding=sum(int(sample.padding.sum()) for sample in subject.samples),
        samples=subject.samples,
        notes=tuple(_audit_notes(subject)),
        laws=subject.laws,
        loss=subject.loss,
        do_rollouts_follow=any(record.facts.get("rollouts_follow") for record in records),
        writes_text=_does_trained_model_write_text(subject),
        canary=tuple((subject.facts.get("canary") or {}).get("fields", ())),
        seconds=time.perf_counter() - started,
    )


def _audit_notes(subject: Audit) -> list[str]:
    """Notes on what the audit could not see, and on rows that no rule may judge; each once."""
    seen = [note for record in subject.records for note in record.facts["notes"]]
    # The same note comes from each process of a run.
    return list(
        dict.fromkeys([*seen, *filter(None, [note_on_unlabelled_rows_without_prompts(subject)])])
    )


def _does_trained_model_write_text(subject: Audit) -> bool:
    """Does the trained model write text, as far as its trainer tells?"""
    made = str(subject.facts["trainer"]["class"] or "")
    return subject.kind != "reward" and not made.startswith("sentence_transformers.")


def _unfinished_audits(records: Sequence[Record]) -> Iterator[NotJudged]:
    """Audits that were not finished."""
    for record in records:
        reason = record.facts.get("lost")
        if reason:
            yield NotJudged(
                "the rest of the audit", str(reason), place=f"process {record.facts['rank']}"
            )
    # A rehearsal has trained its miniature by rewards instead, and its first lines say so.
    follow = next(
        (
            one.facts["rollouts_follow"]
            for one in records
            if one.facts.get("rollouts_follow") and "recitation" not in one.facts
        ),
        "",
    )
    if follow:
        yield NotJudged(
            "lines of batches",
            str(follow),
            unlock="the first rollouts are judged in a report of their own",
            asked=False,
            always_told=True,
        )


def _audit_facts(subject: Audit) -> tuple[tuple[str, str], ...]:
    """Short facts on a run that was watched, by name."""
    facts, model = subject.facts, subject.facts["model"]
    laws = subject.laws
    tested = sum("value" in law for law in laws.values())
    collator = facts["trainer"]["collator"] or "not known"
    fact_values = {
        "collator": collator.rpartition(".")[2],
        "model": f"{model['class'].rpartition('.')[2]}, {model['attention']}, {model['dtype']}",
        "trained": f"{model['trainable']:,} of {model['parameters']:,} parameters",
        "processes": str(facts["world"]),
        "batches": f"{sum(1 for _ in subject.batches())} ({len(subject.samples)} lines)",
        "laws": f"{tested} of {len(laws)} tested" if laws else "none tested",
    }
    return tuple(fact_values.items())
