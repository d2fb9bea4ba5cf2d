"""The prompts are in the loss.

## What it does
Counts the tokens of system, user and tool messages that have a label. Plain text, where there is no prompt, is not
reported. If the settings contain `completion_only_loss=False`, it is info, else a warning.

## Why it is bad
The model learns to write questions as well as answers. If prompts are long, most of the loss is on them, and little is
left for the answers. TRL does this by default for rows with `messages`.

## Example

```python
run = sft(rows)
```

## Use instead

```python
given = datasets.Dataset.from_list([{"prompt": row["messages"][:1], "completion": row["messages"][1:]} for row in rows])
run = sft(list(given))
```

## Fix safety
There is no automatic fix: some runs train on the whole text on purpose; there, use `--ignore prompt-supervised`. With a
mask, the loss is only on answers and can't be compared with earlier runs.

## References

- huggingface/trl#3728, huggingface/trl#1282, arXiv:2405.14394
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from truetune.auditing.audit import Audit
from truetune.checks.batch.evidence.answer_spans import (
    answers_in_line,
    lines_of_known_rows,
    prompt_mask,
    row_format_of_audit,
    text_around,
)
from truetune.checks.batch.evidence.loss_masks_lost_in_batches import (
    does_other_finding_explain_prompt_loss,
)
from truetune.checks.batch.evidence.pretokenized_rows_without_labels import (
    ENCODE_REMEDY,
    did_rows_come_tokenized,
    prompts_learned_for_lack_of_labels,
)
from truetune.checks.batch.evidence.reasons_batch_rules_cannot_judge import (
    NO_ANSWER_LEARNED,
    PLAIN_TEXT,
    PROMPTS_EXPLAINED,
    explain_missing_answer,
)
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import BatchRule


class PromptSupervised(BatchRule):
    code = "BAT003"
    fault = Fault.PROMPTS_IN_LOSS
    severity = "warning"
    stability = "stable"
    since = "0.1.0"

    def __init__(self, subject: Audit) -> None:
        super().__init__(subject)
        self.prompts = 0
        self.learned = 0

    def findings(self) -> Iterator[Finding]:
        labels = 0
        cases: list[Case] = []
        for sample in lines_of_known_rows(self.subject):
            answers = answers_in_line(sample, self.subject.stops)
            is_prompt = prompt_mask(self.subject, sample)
            for answer in answers:
                is_prompt[answer.start - 1 : answer.start] = False
            learned = is_prompt & sample.supervised
            self.prompts += int(is_prompt.sum())
            self.learned += int(learned.sum())
            labels += int(sample.supervised.sum())
            if learned.any() and any(answer.supervised_token_mask.any() for answer in answers):
                cases.append(
                    Case(
                        f"{sample.place}: a label on"
                        f" {text_around(sample, int(np.flatnonzero(learned)[0]))}"
                    )
                )
        if (
            not cases
            or self.subject.kind == "orpo"
            or row_format_of_audit(self.subject) == "text"
            or self._is_explained_by_other_finding()
        ):
            return
        meant = self.subject.facts["args"].get("completion_only_loss") is False
        yield self.finding(
            f"{self.learned:,} of {self.prompts:,} prompt tokens are in the loss"
            f" ({self.learned / labels:.0%} of all labels)",
            self._remedy_for_format(),
            severity="info" if meant else "warning",
            evidence=["the settings ask for it: completion_only_loss=False"] if meant else (),
            cases=cases,
            count=self.learned,
            total=self.prompts,
        )

    def _is_explained_by_other_finding(self) -> bool:
        """Does another finding say why prompts are in the loss?"""
        return (
            does_other_finding_explain_prompt_loss(self.subject)
            or prompts_learned_for_lack_of_labels(self.subject) is not None
        )

    def _remedy_for_format(self) -> str:
        """What keeps prompts out of the loss of this trainer, for rows of this format."""
        if did_rows_come_tokenized(self.subject):
            return ENCODE_REMEDY
        if any("SFTTrainer" in base for base in self.subject.facts["trainer"]["bases"]):
            chats = row_format_of_audit(self.subject) not in ("prompt-completion", "alpaca")
            return f"set {'assistant_only_loss' if chats else 'completion_only_loss'}=True"
        return "set the labels of prompt tokens to -100"

    def unmet(self) -> Unmet | None:
        lacking = super().unmet()
        if lacking is not None:
            return lacking
        lines = lines_of_known_rows(self.subject)
        if not lines:
            return explain_missing_answer(self.subject, lines)
        if not self.learned:
            return None
        if self.subject.kind == "orpo":
            return Unmet("it is about losses on answers only, and ORPO's includes the prompt")
        if row_format_of_audit(self.subject) == "text":
            return PLAIN_TEXT
        return PROMPTS_EXPLAINED if self._is_explained_by_other_finding() else NO_ANSWER_LEARNED

    def measurement_if_clean(self) -> Measurement:
        """How many prompt tokens are in the loss."""
        return make_count_measurement(
            "prompt tokens that are in the loss", self.learned, self.prompts
        )
