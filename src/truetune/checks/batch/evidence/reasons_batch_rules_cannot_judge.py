"""Shared reasons why rules on batches can say nothing.

Each is told once for all rules that have it, so the words must be the same: they stand here and not in the rules.
"""

from __future__ import annotations

from collections.abc import Sequence

from truetune.auditing.audit import Audit, Sample
from truetune.checks.batch.evidence.answer_spans import (
    lines_with_unshifted_labels,
    row_format_of_audit,
)
from truetune.checks.judgement import Unmet

NO_LABELS = Unmet("it is about labels, and the batches hold none")
LABELS_OF_OTHERS = Unmet(
    "most labels are not of their own token, which double-label-shift is about"
)
PLAIN_TEXT = Unmet("it is about prompts with answers, and the rows are plain text")
NO_ANSWER_SEEN = Unmet(
    "no answer was recognised in the lines",
    "give the rows before their preparation: truetune.audit(..., given=rows)",
)
NO_ANSWER_LEARNED = Unmet("no answer has a label, which response-not-supervised is about")
PROMPTS_EXPLAINED = Unmet("another finding says why prompts are in the loss")
NO_ROWS = Unmet(
    "the rows before their preparation are not known",
    "give them to the audit: truetune.audit(..., given=rows)",
)
NO_TOKENIZER = Unmet(
    "the run has no tokenizer", "name it: truetune.audit(..., tokenizer=tokenizer)"
)
NO_BOS = Unmet("it is about BOS, and the tokenizer has none")
NO_CANARY = Unmet(
    "no marked row was sent", "truetune run --canary, or truetune.audit(..., canary=True)"
)
ONE_PROCESS = Unmet("it is about several processes, and there is one")


def explain_missing_labels(audit: Audit, lines: Sequence[Sample]) -> Unmet | None:
    """Why no line is judged by its labels; None where `lines` holds one."""
    if lines:
        return None
    labelled = any(sample.labels is not None and sample.side != "kl" for sample in audit.samples)
    return LABELS_OF_OTHERS if labelled else NO_LABELS


def explain_missing_answer(audit: Audit, recognised: Sequence[Sample]) -> Unmet:
    """Why no answer was found in the recognised lines. Lines may be judged by their labels, and not be recognised."""
    lacking = explain_missing_labels(audit, recognised or list(lines_with_unshifted_labels(audit)))
    if lacking is not None:
        return lacking
    return PLAIN_TEXT if row_format_of_audit(audit) == "text" else NO_ANSWER_SEEN
