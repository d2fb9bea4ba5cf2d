"""A control token of the chat template is in the batches as ordinary text, split into several tokens.

## What it does
Looks for the names of the template's control tokens in the text of the first batches, in places without a single token
for them. Names that the rows themselves contain do not count. It is an error if the tokenizer has one token for them,
and otherwise a warning.

## Why it is bad
The model learns to write `<|im_end|>` in pieces. Serving waits for the one id, which never comes, and its prompts
contain ids that the model has not seen in training.

## Example

```python
tokenizer.split_special_tokens = True
texts = [tokenizer.apply_chat_template(row["messages"], tokenize=False) for row in rows]
made = [{"input_ids": ids, "labels": ids} for ids in tokenizer(texts, split_special_tokens=True)["input_ids"]]
run = transformers.Trainer(model, arguments(), transformers.DataCollatorForSeq2Seq(tokenizer), made,
                           processing_class=tokenizer)
```

## Use instead

```python
run = transformers.Trainer(model, arguments(), transformers.DataCollatorForSeq2Seq(tokenizer), encoded(rows),
                           processing_class=tokenizer)
```

## Fix safety
There is no automatic fix: your code tokenizes the rows. With the model's own tokenizer and without
`split_special_tokens`, each control token becomes one id.

## References

- huggingface/transformers#29279, huggingface/transformers#47822
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import numpy as np

from truetune.auditing.audit import Audit, Sample
from truetune.checks.batch.evidence.answer_spans import lines_with_unshifted_labels
from truetune.checks.batch.evidence.reasons_batch_rules_cannot_judge import (
    NO_TOKENIZER,
    explain_missing_labels,
)
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import MAX_CASES, BatchRule
from truetune.render.template_probes import ANSWER, QUESTION, alternating_chat

CONTROL_TOKEN = re.compile(r"<\|[^|<>\s]+\|>|<(?:start|end)_of_turn>")
"""What is a control token in all templates that write it"""


class ControlTokenSpelledAsText(BatchRule):
    code = "BAT015"
    fault = Fault.CHAT_TEMPLATE_OF_ANOTHER_MODEL
    symptoms = ("garbage-output",)
    severity = "error"
    since = "0.1.0"

    def __init__(self, subject: Audit) -> None:
        super().__init__(subject)
        self.lines = self.judged = self.names = 0

    def findings(self) -> Iterator[Finding]:
        places = self._find_spelled_markers()
        lines = {(sample.rank, sample.batch, sample.line) for sample, *_ in places}
        self.lines = len(lines)
        # In fewer lines it is a text that talks of such tokens; a wrong tokenizer spells them in
        # all.
        if not lines or 2 * len(lines) < self.judged:
            return
        spelled = sorted({name for _, name, *_ in places})
        control = {name for name in spelled if self._is_single_token(name)}
        remedy = (
            "add them as special tokens (tokenizer.add_special_tokens, model.resize_token_embeddings) and train their"
            " embeddings, or use the template of this model"
        )
        if control:
            remedy = "tokenize with the model's own tokenizer, without split_special_tokens=True"
        yield self.finding(
            f"{len(places)} control tokens in {len(lines)} of {self.judged} sequences are split into"
            " several tokens",
            remedy,
            severity="error" if control else "warning",
            evidence=[
                self._describe_whether_marker_has_id(name, name in control) for name in spelled
            ],
            cases=[
                Case(f"{sample.place}: {' '.join(map(repr, sample.pieces[start:end]))}")
                for sample, _, start, end in places[:MAX_CASES]
            ],
            count=len(places),
        )

    def _find_spelled_markers(self) -> list[tuple[Sample, str, int, int]]:
        """(line, marker, first token, one past the last) wherever several tokens spell a marker; counts what it saw."""
        names = _template_markers_absent_from_rows(self.subject)
        samples = list(lines_with_unshifted_labels(self.subject))
        self.judged, self.names = len(samples), len(names)
        return [
            (sample, *place)
            for sample in samples
            for name in names
            for place in _spelled_places(sample, name)
        ]

    @staticmethod
    def _describe_whether_marker_has_id(name: str, is_control: bool) -> str:
        """Whether this tokenizer has one id for a marker."""
        what = "has one id in this tokenizer" if is_control else "is not a token of this tokenizer"
        return f"{name} {what}"

    def _is_single_token(self, name: str) -> bool:
        """Has this tokenizer one id for a marker?"""
        probes = self.subject.probes
        return probes is not None and probes.tokenizer.backend.token_to_id(name) is not None

    def unmet(self) -> Unmet | None:
        lacking = super().unmet() or explain_missing_labels(
            self.subject, list(lines_with_unshifted_labels(self.subject))
        )
        if lacking is not None:
            return lacking
        if self.subject.probes is None:
            return NO_TOKENIZER
        if not self.names:
            return Unmet(
                "it is about markers that the chat template writes and no row holds, and there are"
                " none"
            )
        return None

    def measurement_if_clean(self) -> Measurement:
        """How many lines hold a control token that several tokens spell."""
        return make_count_measurement(
            "sequences with a control token that is split into several tokens",
            self.lines,
            self.judged,
        )


def _template_markers_absent_from_rows(audit: Audit) -> list[str]:
    """Markers that the template writes and no given row contains."""
    text = (audit.probes.text(alternating_chat(QUESTION, ANSWER)) if audit.probes else None) or ""
    rows = json.dumps([record.rows for record in audit.records], ensure_ascii=False)
    return [name for name in dict.fromkeys(CONTROL_TOKEN.findall(text)) if name not in rows]


def _spelled_places(sample: Sample, name: str) -> Iterator[tuple[str, int, int]]:
    """(name, first token, one past the last) wherever the text holds the name and no one token does."""
    text, begins = "".join(sample.pieces), np.cumsum([0, *map(len, sample.pieces)])
    for match in re.finditer(re.escape(name), text):
        start = int(np.searchsorted(begins, match.start(), side="right")) - 1
        end = int(np.searchsorted(begins, match.end(), side="left"))
        if end - start > 1:
            yield name, start, end
