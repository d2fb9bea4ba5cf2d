"""Template text around the answers is in the loss.

## What it does
Counts the tokens with a label that the chat template writes before an answer (the role header) or after its stop token
(the start of the next turn). White space after a stop token, which TRL supervises, does not count. If the prompts
themselves are in the loss, `prompt-supervised` reports that instead.

## Why it is bad
The model learns to write what the prompt in serving already contains: answers begin with `assistant` again, or continue
with the next turn's header. It means that the labelled spans begin too early or end too late.

## Example

```python
made = encoded(rows)
for row in made:
    first = next(i for i, label in enumerate(row["labels"]) if label >= 0)
    row["labels"][first - 3 : first] = row["input_ids"][first - 3 : first]
run = transformers.Trainer(model, arguments(), transformers.DataCollatorForSeq2Seq(tokenizer), made,
                           processing_class=tokenizer)
```

## Use instead

```python
run = transformers.Trainer(model, arguments(), transformers.DataCollatorForSeq2Seq(tokenizer), encoded(rows),
                           processing_class=tokenizer)
```

## Fix safety
There is no automatic fix: your code makes the labels. Start them at the first token of the answer and end them with the
stop token; fewer tokens are then in the loss.

## References

- NVIDIA-NeMo/Automodel#3352, QwenLM/Qwen#446, NVIDIA-NeMo/Speech#16284
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from truetune.auditing.audit import Audit, Sample
from truetune.checks.batch.evidence.answer_spans import (
    answer_header_mask,
    answers_in_line,
    lines_of_known_rows,
    prompt_mask,
    true_runs,
)
from truetune.checks.batch.evidence.loss_masks_lost_in_batches import (
    does_other_finding_explain_prompt_loss,
)
from truetune.checks.batch.evidence.reasons_batch_rules_cannot_judge import (
    PROMPTS_EXPLAINED,
    explain_missing_answer,
)
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import MAX_CASES, BatchRule
from truetune.render.rendering import Source


class HeaderOrRoleTokensSupervised(BatchRule):
    code = "BAT004"
    fault = Fault.TEMPLATE_TEXT_IN_LOSS
    symptoms = ("garbage-output", "nothing-is-learned")
    severity = "warning"
    stability = "stable"
    since = "0.1.0"

    def __init__(self, subject: Audit) -> None:
        super().__init__(subject)
        self.answers = 0
        self.found = False

    def findings(self) -> Iterator[Finding]:
        spans = []
        for sample in lines_of_known_rows(self.subject):
            turns = answers_in_line(sample, self.subject.stops)
            if turns and int((prompt_mask(self.subject, sample) & sample.supervised).sum()) <= 1:
                self.answers += len(turns)
                spans += [
                    (sample, start, end)
                    for start, end in true_runs(_learned_template_mask(self.subject, sample))
                ]
        self.found = bool(spans)
        if not spans or does_other_finding_explain_prompt_loss(self.subject):
            return
        tokens = sum(end - start for _, start, end in spans)
        yield self.finding(
            f"{tokens} template tokens around {self.answers} answers are in the loss",
            "start the labels at the first token after the generation prompt, and"
            " end them with the stop token; give -100 to the rest",
            cases=[
                Case(
                    f"{sample.place}: a label on {sample.text(start, end)!r} in"
                    f" {_text_with_context(sample, start, end)!r}"
                )
                for sample, start, end in spans[:MAX_CASES]
            ],
            count=tokens,
        )

    def unmet(self) -> Unmet | None:
        lacking = super().unmet()
        if lacking is not None:
            return lacking
        lines = lines_of_known_rows(self.subject)
        if self.found:
            return PROMPTS_EXPLAINED
        if not any(answers_in_line(sample, self.subject.stops) for sample in lines):
            return explain_missing_answer(self.subject, lines)
        return (
            None
            if self.answers
            else Unmet("the prompts are in the loss, which prompt-supervised is about")
        )

    def measurement_if_clean(self) -> Measurement:
        """How many answers have template text around them in the loss."""
        return make_count_measurement(
            "answers with template text around them in the loss", 0, self.answers
        )


def _learned_template_mask(audit: Audit, sample: Sample) -> NDArray[np.bool_]:
    """(tokens,) true for supervised template tokens that are no stop token, no part of an answer,
    and not the space after a stop.
    """
    flags = sample.source == Source.TEMPLATE
    if sample.placed_by == "markers":
        flags |= answer_header_mask(audit, sample)
    stops = list(audit.stops)
    flags &= sample.supervised & ~sample.padding & ~np.isin(sample.ids, stops)
    if sample.expected is not None:
        flags &= ~sample.expected
    for start, end in true_runs(flags):
        space = start
        while space < end and not sample.text(space, space + 1).strip():
            space += 1
        if start and int(sample.ids[start - 1]) in stops:
            flags[start:space] = False
    return np.asarray(flags)


def _text_with_context(sample: Sample, start: int, end: int) -> str:
    """The text of some tokens, and of four on either side."""
    return sample.text(max(start - 4, 0), min(end + 4, len(sample.ids)))
