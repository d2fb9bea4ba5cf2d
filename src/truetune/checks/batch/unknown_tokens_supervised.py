"""The unknown token is in the loss.

## What it does
Counts the labels of the first batches that are the tokenizer's unknown token. It is a warning from 1 % on, and info
below. A tokenizer whose unknown token is also its stop, pad or BOS token is not judged.

## Why it is bad
If the tokenizer has no token for a text, the model learns to write its placeholder. Names, emoji or a whole script are
lost, in training and in every answer.

## Example

```python
tokenizer.unk_token = "Q"
given = datasets.Dataset.from_list([{"messages": [*row["messages"][:1], {"role": "assistant", "content": "A Q or QQ"}]}
                                    for row in rows])
made = encoded(given, tokenizer)
run = transformers.Trainer(model, arguments(), transformers.DataCollatorForSeq2Seq(tokenizer), made,
                           processing_class=tokenizer)
```

## Use instead

```python
run = transformers.Trainer(model, arguments(), transformers.DataCollatorForSeq2Seq(tokenizer), encoded(rows),
                           processing_class=tokenizer)
```

## Fix safety
There is no automatic fix: another tokenizer, or new tokens whose embeddings are trained, are your choice.

## References

- facebookresearch/ParlAI#4135, NVIDIA-NeMo/Speech#6651
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from truetune.checks.batch.evidence.answer_spans import lines_with_unshifted_labels, text_around
from truetune.checks.batch.evidence.reasons_batch_rules_cannot_judge import (
    NO_TOKENIZER,
    explain_missing_labels,
)
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import MAX_CASES, BatchRule
from truetune.render.tokenizer import SpecialToken

# Chosen, not measured: a rare sign is unknown to any small vocabulary; one label in a hundred is a
# script it can't spell.
WARNING_SHARE = 0.01
"""Share of the labels from which it is a warning"""


class UnknownTokensSupervised(BatchRule):
    code = "BAT017"
    fault = Fault.TOKENIZER_DISTORTS_TEXTS
    symptoms = ("garbage-output",)
    severity = "warning"
    since = "0.1.0"

    def findings(self) -> Iterator[Finding]:
        unknown = self._unknown_token_with_no_other_use()
        if unknown is None:
            return
        samples = list(lines_with_unshifted_labels(self.subject))
        places = [
            (sample, int(i))
            for sample in samples
            for i in np.flatnonzero((sample.ids == unknown.id) & sample.supervised)
        ]
        labels = sum(int(sample.supervised.sum()) for sample in samples)
        if places:
            yield self.finding(
                f"{len(places):,} of {labels:,} labels are the unknown token {unknown.token}",
                "use a tokenizer that can spell the text (byte fallback), or add tokens for it (tokenizer.add_tokens)"
                " and train their embeddings",
                severity="warning" if len(places) >= WARNING_SHARE * labels else "info",
                cases=[
                    Case(f"{sample.place}: {text_around(sample, i)}")
                    for sample, i in places[:MAX_CASES]
                ],
                count=len(places),
                total=labels,
            )

    def _unknown_token_with_no_other_use(self) -> SpecialToken | None:
        """The unknown token; None where there is none, or where it also begins, ends or pads text."""
        special = self.subject.probes.tokenizer.special if self.subject.probes else {}
        others = {special[name].id for name in ("bos", "eos", "pad") if name in special}
        unknown = special.get("unk")
        # Many tokenizers without an unknown token of their own name EOS as it (GPT-2).
        if unknown is None or unknown.id in others | self.subject.stops:
            return None
        return unknown

    def unmet(self) -> Unmet | None:
        lines = list(lines_with_unshifted_labels(self.subject))
        lacking = super().unmet() or explain_missing_labels(self.subject, lines)
        if lacking is not None:
            return lacking
        if self.subject.probes is None:
            return NO_TOKENIZER
        if self._unknown_token_with_no_other_use() is None:
            return Unmet("it is about an unknown token of its own, and the tokenizer has none")
        return None

    def measurement_if_clean(self) -> Measurement:
        """How many labels are the unknown token."""
        labels = sum(
            int(sample.supervised.sum()) for sample in lines_with_unshifted_labels(self.subject)
        )
        return make_count_measurement("labels that are the unknown token", 0, labels)
