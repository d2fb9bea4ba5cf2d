"""The rows came tokenized but without labels: the prompts are in the loss.

## What it does
Reads the columns of the rows before any preparation: `input_ids`, and neither `labels` nor a mask (`completion_mask`,
`assistant_masks`, `loss_mask`). It is an error if the ids contain the template's turns and the prompts' tokens have a
label. `truetune.audit` and the callback see TRL's rows after their preparation, in which labels that mask nothing look
like none; with the data set as `given` they can tell.

Ids without turns of the template are not reported, because all of plain text belongs in the loss. Nor are runs with
`completion_only_loss=False`, and batches in which less than half of the sequences are chats.

## Why it is bad
A trainer masks prompts while it tokenizes text. Rows that are already tokenized skip that: TRL and
`DataCollatorForLanguageModeling` use the ids as labels, so questions, system prompts and tool results are learned like
answers. Nothing is raised. `assistant_only_loss=True` and `completion_only_loss=True` do not help: for such rows the
first raises an error in TRL, and the second has no effect.

## Example

```python
run = sft([{"input_ids": row["input_ids"]} for row in encoded(rows)])
given = datasets.Dataset.from_list([{"input_ids": row["input_ids"]} for row in encoded(rows)])
```

## Use instead

```python
run = sft(encoded(rows))
given = datasets.Dataset.from_list(encoded(rows))
```

## Fix safety
`truetune encode` writes `input_ids` and `labels` from the rows as text; TRL and transformers keep these labels. There
is no automatic fix, because ids do not say which turns should be learned. If whole chats should be in the loss, use
`--ignore tokenized-rows-without-labels`.

## References

- huggingface/trl#1507, huggingface/open-r1#517
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from truetune.auditing.audit import Audit
from truetune.checks.batch.evidence.answer_spans import prompt_mask, text_around
from truetune.checks.batch.evidence.loss_masks_lost_in_batches import (
    count_learned_and_all_tokens,
    prompt_mask_setting,
)
from truetune.checks.batch.evidence.pretokenized_rows_without_labels import (
    ENCODE_REMEDY,
    PromptsOfUnlabelledRows,
    columns_before_preparation,
    did_rows_come_tokenized,
    did_rows_come_without_labels,
    prompts_learned_for_lack_of_labels,
    prompts_of_unlabelled_rows,
)
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import MAX_CASES, BatchRule
from truetune.errors import format_name_list

SOME_LEARNED = Unmet(
    "the collator masks prompts, and not all of them: prompt-supervised says which are learned"
)


class TokenizedRowsWithoutLabels(BatchRule):
    code = "BAT043"
    fault = Fault.PROMPTS_IN_LOSS
    severity = "error"

    def __init__(self, subject: Audit) -> None:
        super().__init__(subject)
        self.prompts = prompts_learned_for_lack_of_labels(subject)

    def findings(self) -> Iterator[Finding]:
        bare = self.prompts
        if bare is None or prompt_mask_setting(self.subject):
            return
        yield self.finding(
            f"the rows came tokenized, without labels: {bare.learned:,} of {bare.prompts:,}"
            f" prompt tokens are in the loss ({bare.learned / bare.labels:.0%} of all labels)",
            ENCODE_REMEDY,
            evidence=[
                f"columns of the rows given: {format_name_list(sorted(columns_before_preparation(self.subject)))}"
            ],
            cases=[
                self._case_of_learned_prompt(bare, number)
                for number in range(min(len(bare.lines), MAX_CASES))
            ],
            count=bare.learned,
            total=bare.prompts,
        )

    def _case_of_learned_prompt(self, bare: PromptsOfUnlabelledRows, number: int) -> Case:
        """A case at the first learned token of the prompt of one line."""
        sample = bare.lines[number]
        first = int(np.flatnonzero(prompt_mask(self.subject, sample) & sample.supervised)[0])
        return Case(f"{sample.place}: a label on {text_around(sample, first)}")

    def unmet(self) -> Unmet | None:
        lacking = super().unmet()
        if lacking is not None:
            return lacking
        if not did_rows_come_tokenized(self.subject):
            return Unmet("it is about rows that came tokenized")
        if not did_rows_come_without_labels(self.subject):
            return None
        if self.prompts is not None:
            return Unmet(
                f"{prompt_mask_setting(self.subject)} has no effect, which masking-setting-without-effect"
                " says"
            )
        if self.subject.facts["args"].get("completion_only_loss") is False:
            return Unmet("the settings ask for a loss on whole rows: completion_only_loss=False")
        bare = prompts_of_unlabelled_rows(self.subject)
        if bare is not None:
            return SOME_LEARNED if bare.learned else None
        supervised, total = count_learned_and_all_tokens(self.subject)
        return Unmet(
            f"the rows came tokenized, without labels: {supervised:,} of {total:,} tokens are in"
            " the loss, and less than half of the sequences contain turns of the chat template; for plain"
            " text that is right",
            "give the rows labels if they contain prompts, or name the tokenizer whose template"
            " wrote them",
        )

    def measurement_if_clean(self) -> Measurement:
        """How many prompt tokens of rows without labels are in the loss; else that no line is of such rows."""
        bare = prompts_of_unlabelled_rows(self.subject)
        if bare is not None:
            return make_count_measurement(
                "prompt tokens of rows without labels that are in the loss",
                bare.learned,
                bare.prompts,
            )
        return make_count_measurement(
            "sequences of rows that came tokenized, without labels", 0, len(self.subject.samples)
        )
