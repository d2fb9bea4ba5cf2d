"""The report of a rehearsal: an audit's report, and how the miniature answered.

Answers are judged only where the miniature learned the rows: one that did not says nothing of the run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from truetune.checks.judge_audit import AuditReport
from truetune.checks.judge_audit import audit as judge
from truetune.checks.judgement import NotJudged
from truetune.checks.recitation.recitation_record import MAX_LEARNED_LOSS
from truetune.probe.run_record import Record
from truetune.rehearsal.mutation_score import MutationTest, mutation_test_of_first_process
from truetune.settings.run_spec import RunSpec

NO_PAIRS = "no two answers to one prompt were found"


@dataclass(frozen=True, slots=True)
class RecitedRow:
    """One memorised row, with the answer that the miniature gave."""

    row: int | None
    """Number of the given row, 0-based; None where it was not recognised"""
    question: str
    reference: str
    said: str
    """What the miniature answered to the prompt as it will be served"""
    recited: bool
    """The answer begins with the reference, word for word"""
    stopped: bool
    """It ended by itself"""


@dataclass(frozen=True, slots=True)
class PreferencePair:
    """One pair with its margins before and after preference training; margins are log p(chosen) -
    log p(rejected), in nats.
    """

    prompt: str
    chosen: str
    rejected: str
    before: float
    after: float


@dataclass(frozen=True, kw_only=True, repr=False)
class RehearsalReport(AuditReport):
    """What reached the loss, and what a miniature of the model learned from it."""

    recited: tuple[RecitedRow, ...]
    pairs: tuple[PreferencePair, ...]
    losses: tuple[float, ...]
    """Of the steps of memorising, in nats per token"""
    miniature: str
    """Its class, layers, width, and vocabulary"""
    rewards: Mapping[str, Any] = field(default_factory=dict)
    """Of a training by rewards: what its own reward functions gave to right and wrong answers, and how a reward went
    that can be learned; `checks.recitation.recitation_record.RewardTrials`"""
    mutation: MutationTest | None = None
    """Faults put into the run's own batch, and who noticed; None where none were asked for"""

    def more(self) -> dict[str, Any]:
        """The part of the JSON report that an audit does not have."""
        return {
            "recitation": {
                "miniature": self.miniature,
                "losses": list(self.losses),
                "rows": [asdict(row) for row in self.recited],
                "pairs": [asdict(pair) for pair in self.pairs],
                **({"rewards": dict(self.rewards)} if self.rewards else {}),
                "mutation": self.mutation and asdict(self.mutation),
            }
        }


def judge_rehearsal(records: Sequence[Record], spec: RunSpec | None = None) -> RehearsalReport:
    """Judge what a rehearsal recorded. Raises TokenizerError or TemplateError where its tokenizer can't be read."""
    audited = judge(records, spec)
    recitation: dict[str, Any] = records[0].facts.get("recitation", {})
    audit_fields = {one.name: getattr(audited, one.name) for one in fields(audited)}
    audit_fields["notes"] = (*audited.notes, *_why_answers_were_not_judged(recitation))
    # Nothing was recited is no clean result: the report says that it was not judged, and why.
    rewards: Mapping[str, Any] = recitation.get("rewards") or {}
    if "nothing" in rewards:
        missing = NotJudged("rewards", f"nothing was learned: {rewards['nothing']}")
        audit_fields["not_judged"] = (missing, *audited.not_judged)
    elif not (recitation.get("rows") or recitation.get("pairs") or rewards):
        reason = (
            "nothing was recited:"
            f" {recitation.get('nothing') or records[0].facts.get('lost') or NO_PAIRS}"
        )
        audit_fields["not_judged"] = (NotJudged("recitation", reason), *audited.not_judged)
    return RehearsalReport(
        **audit_fields,
        recited=tuple(
            RecitedRow(
                row["number"],
                row["question"],
                row["reference"],
                row["said"],
                row["recited"],
                row["stopped"],
            )
            for row in recitation.get("rows", ())
        ),
        pairs=tuple(PreferencePair(**pair) for pair in recitation.get("pairs", ())),
        losses=tuple(recitation.get("loss", ())),
        miniature=_describe_miniature(recitation),
        rewards=rewards,
        mutation=mutation_test_of_first_process(records),
    )


def _why_answers_were_not_judged(recitation: dict[str, Any]) -> Iterator[str]:
    """Why answers were not judged, where the miniature did not learn the rows."""
    losses, of_labels = recitation.get("loss", ()), recitation.get("label_loss")
    if not recitation.get("rows") or not losses:
        return
    # Two reasons: the loss did not fall, or a loss that is no cross-entropy fell without the labels being learned.
    if not recitation["fell"]:
        yield (
            f"the rows were learned in part only (loss {losses[0]:.2g} to {losses[-1]:.2g} in"
            f" {len(losses)} steps): their answers are not judged"
        )
    elif of_labels is not None and of_labels > MAX_LEARNED_LOSS:
        yield (
            f"this loss can be low ({losses[-1]:.2g}) where the labels are not learned (their"
            f" cross-entropy is {of_labels:.2g}): answers are not judged"
        )


def _describe_miniature(recitation: dict[str, Any]) -> str:
    """The miniature in words: class, layers, width and vocabulary; `none` where there was none."""
    shape, words = recitation.get("shape", {}), recitation.get("vocabulary", {})
    if not shape:
        return "none"
    kept = f"{words['kept']:,} of {words['size']:,} ids"
    return f"{shape['class']}, {shape['layers']} layers of width {shape['width']}, {kept}"
