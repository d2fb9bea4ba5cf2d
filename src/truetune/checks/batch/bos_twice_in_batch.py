"""Documents begin with two BOS tokens.

## What it does
Reads the ids of the real batches, and counts the places where a BOS token follows a BOS token.

## Why it is bad
The model has never seen two BOS tokens: large models answer worse after them, and prompts in serving have only one. It
happens if a template writes BOS and the tokenizer adds it again. The loss does not show it.

## Example

```python
tokenizer.bos_token = "<|endoftext|>"
text = [{"text": tokenizer.bos_token * 2 + tokenizer.apply_chat_template(row["messages"], tokenize=False)}
        for row in rows]
run = sft(text, tokenizer_=tokenizer)
```

## Use instead

```python
tokenizer.bos_token = "<|endoftext|>"
text = [{"text": tokenizer.bos_token + tokenizer.apply_chat_template(row["messages"], tokenize=False)} for row in rows]
run = sft(text, tokenizer_=tokenizer)
```

## Fix safety
There is no automatic fix: tokenize rendered text with `add_special_tokens=False`, or give the trainer messages, so that
it applies the template itself.

## References

- huggingface/trl#1400, huggingface/trl#3328, vllm-project/vllm#16976
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from truetune.auditing.audit import Sample
from truetune.checks.batch.evidence.documents_in_batch_lines import document_spans
from truetune.checks.batch.evidence.reasons_batch_rules_cannot_judge import NO_BOS, NO_TOKENIZER
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import BatchRule

SHOWN_TOKENS = 8


class BosTwiceInBatch(BatchRule):
    code = "BAT019"
    fault = Fault.SPECIAL_TOKENS_DOUBLED_OR_MISPLACED
    symptoms = ("garbage-output",)
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    judges_collator = True

    def findings(self) -> Iterator[Finding]:
        bos = (self.subject.facts["tokenizer"] or {}).get("bos")
        if bos is None:
            return
        ends = bos in self.subject.stops
        places = [
            (sample, i)
            for sample in self.subject.samples
            for i in _double_bos_places(sample, bos, ends=ends)
        ]
        if places:
            total = sum(len(document_spans(sample)) for sample in self.subject.samples)
            yield self.finding(
                f"{len(places)} places in the batches have two BOS tokens in a row (id {bos};"
                f" {total} documents)",
                "tokenize rendered text with add_special_tokens=False, or remove BOS from the"
                " template",
                cases=[
                    Case(f"{sample.place}: {sample.text(i, i + SHOWN_TOKENS)!r}")
                    for sample, i in places
                ],
                count=len(places),
            )

    def unmet(self) -> Unmet | None:
        tokenizer = self.subject.facts["tokenizer"]
        if tokenizer is None:
            return super().unmet() or NO_TOKENIZER
        return super().unmet() or (NO_BOS if tokenizer.get("bos") is None else None)

    def measurement_if_clean(self) -> Measurement:
        """How many documents have two BOS tokens in a row."""
        total = sum(len(document_spans(sample)) for sample in self.subject.samples)
        return make_count_measurement("documents with two BOS tokens in a row", 0, total)


def _double_bos_places(sample: Sample, bos: int, *, ends: bool) -> list[int]:
    """The places of the first of two BOS tokens; if BOS also ends documents, only at the start of
    the line.
    """
    is_bos = (sample.ids == bos) & ~sample.padding
    first = np.flatnonzero(
        is_bos[:-1] & is_bos[1:] & (sample.documents[:-1] == sample.documents[1:])
    ).tolist()
    begin = int(np.argmin(sample.padding))
    return [i for i in first if i == begin or not ends]
