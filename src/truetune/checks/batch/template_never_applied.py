"""The rows are chats, but the chat template's control tokens are not in the batches.

## What it does
Renders a small conversation with the tokenizer's own template, and looks for the control tokens around its turns in the
first batches. It warns if the rows are prompts with answers and none of these tokens occurs. Plain text is not
reported.

## Why it is bad
Serving renders its prompts with the template, so the model gets a form that it was never trained on. It seems to have
learned nothing, repeats itself, or does not stop.

## Example

```python
given = datasets.Dataset.from_list([{"prompt": "How many figs?", "completion": " Three."}] * 8)
run = sft(list(given))
```

## Use instead

```python
given = datasets.Dataset.from_list([{"prompt": row["messages"][:1], "completion": row["messages"][1:]} for row in rows])
run = sft(list(given))
```

## Fix safety
Rows with messages are rendered with the template. If the model will be served on plain text, the strings are right:
then use `--ignore template-never-applied`.

## References

- huggingface/trl#3468, huggingface/trl#3140, huggingface/trl#1233
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from truetune.auditing.audit import Audit
from truetune.checks.batch.evidence.answer_spans import (
    lines_with_unshifted_labels,
    row_format_of_audit,
)
from truetune.checks.batch.evidence.reasons_batch_rules_cannot_judge import (
    NO_TOKENIZER,
    PLAIN_TEXT,
    explain_missing_labels,
)
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import MAX_CASES, BatchRule
from truetune.render.template_probes import ANSWER, QUESTION, alternating_chat


class TemplateNeverApplied(BatchRule):
    code = "BAT014"
    fault = Fault.CHAT_MODEL_TRAINED_WITHOUT_TEMPLATE
    symptoms = ("garbage-output", "nothing-is-learned")
    severity = "warning"
    stability = "stable"
    since = "0.1.0"

    def findings(self) -> Iterator[Finding]:
        markers = _control_tokens_around_turns(self.subject)
        samples = list(lines_with_unshifted_labels(self.subject))
        kind = row_format_of_audit(self.subject)
        if not markers or not samples or kind in (None, "text"):
            return
        if any(np.isin(sample.ids, list(markers)).any() for sample in samples):
            return
        yield self.finding(
            f"none of the chat template's control tokens is in the {len(samples)} sequences of the batches",
            "give the trainer lists of messages (prompt and completion as lists, or a messages column), so that it"
            " applies the chat template",
            evidence=[
                f"the rows are {kind}",
                f"the template would write {', '.join(sorted(markers.values()))}",
            ],
            cases=[
                Case(f"{sample.place}: begins with {sample.text(0, 16)!r}")
                for sample in samples[:MAX_CASES]
            ],
            count=len(samples),
            total=len(samples),
        )

    def unmet(self) -> Unmet | None:
        lines = list(lines_with_unshifted_labels(self.subject))
        lacking = super().unmet() or explain_missing_labels(self.subject, lines)
        if lacking is not None:
            return lacking
        if self.subject.probes is None:
            return NO_TOKENIZER
        if not _control_tokens_around_turns(self.subject):
            return Unmet("it is about markers of a chat template, and the tokenizer's writes none")
        kind = row_format_of_audit(self.subject)
        if kind is None:
            return Unmet("it is not known what the rows are")
        return PLAIN_TEXT if kind == "text" else None

    def measurement_if_clean(self) -> Measurement:
        """How many lines have a marker of the chat template."""
        markers, samples = (
            list(_control_tokens_around_turns(self.subject)),
            list(lines_with_unshifted_labels(self.subject)),
        )
        marked = sum(bool(np.isin(sample.ids, markers).any()) for sample in samples)
        return make_count_measurement(
            "sequences with a control token of the chat template", marked, len(samples)
        )


def _control_tokens_around_turns(audit: Audit) -> dict[int, str]:
    """Control tokens that the template writes around turns: not BOS at the start, nor EOS, which trainers add."""
    text = audit.probes.text(alternating_chat(QUESTION, ANSWER)) if audit.probes else None
    if audit.probes is None or text is None or ANSWER not in text:
        return {}
    tokenizer = audit.probes.tokenizer
    ids = tokenizer.backend.encode(text, add_special_tokens=False).ids
    ignored = _ids_added_by_trainers(audit, ids)
    return {
        id: tokenizer.backend.id_to_token(id) or ""
        for id in ids
        if id in tokenizer.control and id not in ignored
    }


def _ids_added_by_trainers(audit: Audit, ids: list[int]) -> set[int]:
    """BOS and EOS as trainers add them to plain text, which say nothing about a template.

    Where the template writes one of them several times, it marks turns with it, and counts.
    """
    special = audit.probes.tokenizer.special if audit.probes else {}
    own = [special[name].id for name in ("bos", "eos") if name in special]
    # EOS stands last in `own`; where it ends turns, plain text that a trainer ends has it as well.
    return {id for id in own if ids.count(id) <= 1} | {id for id in own[-1:] if id in audit.stops}
