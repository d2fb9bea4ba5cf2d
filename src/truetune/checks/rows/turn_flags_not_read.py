"""Turns are marked as not to be trained on, but the trainer ignores the mark.

## What it does
For rows that TRL, LLaMA-Factory or Axolotl trains on: counts the answers with `train: false` or a `weight` of 0. None
of these trainers reads such a key by default; Axolotl does if its data set names it (`message_field_training`). The
rule does not fire if a script next to the rows reads the key.

## Why it is bad
Answers that somebody marked as bad, or as context only, are in the loss like all others. The output does not mention
it.

## Example
```yaml
spec: {trained_by: trl}
data:
  - messages:
      - {role: user, content: "Is it open?"}
      - {role: assistant, content: "No idea.", train: false}
      - {role: user, content: "Please look."}
      - {role: assistant, content: "It opens at nine.", train: true}
```

## Use instead
```yaml
spec: {trained_by: trl}
data:
  - messages:
      - {role: user, content: "Is it open?"}
      - {role: user, content: "Please look."}
      - {role: assistant, content: "It opens at nine."}
```

## Fix safety
In Axolotl, `message_field_training: train` in the data set makes it read the key. Elsewhere, drop such an answer, or
write a separate row with prompt and completion for each answer that should be in the loss.

## References
- axolotl, src/axolotl/prompt_strategies/chat_template.py (`message_field_training`)
- huggingface/trl, `SFTTrainer`: what is learned follows the template's generation tags, or the completion
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.make_cases_at_tokens_and_turns import case_in_message
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.reasons_data_rules_cannot_judge import NO_CHATS
from truetune.checks.rule import MAX_CASES, DataRule, Setup
from truetune.encoding.batch import Batch

IGNORES_FLAGS = ("trl", "llama-factory", "axolotl")
FLAGS = frozenset(("train", "weight", "loss_weight"))
AXOLOTL_SETTING = "datasets.message_field_training"
"""Among the other settings of a run that Axolotl trains"""
REMEDIES = {
    "axolotl": (
        "set message_field_training: train under the entry in `datasets` (its values are true and false)"
    ),
    "trl": (
        "drop these answers, or make a separate row with prompt and completion for each answer to train on"
    ),
    "llama-factory": (
        "drop these answers; or, if only the last answer counts, set mask_history: true"
    ),
}


class TurnFlagsNotRead(DataRule):
    code = "ROW072"
    fault = Fault.LOSS_MASK_IGNORED_OR_OVERWRITTEN
    symptoms = ("nothing-is-learned",)
    severity = "warning"
    needs_tokenizer = False

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.answers = 0
        self.marked = 0
        self.cases: list[Case] = []

    def add_batch(self, batch: Batch) -> None:
        """Count the answers of a batch that are marked as not to be trained."""
        if self._reason_not_to_judge() is not None:
            return
        for row in batch.rows:
            if not row.is_chat:
                continue
            # Where the last answer alone is learned, marks of the others change nothing.
            begin = len(row.messages) - 1 if self.spec.learn.what == "last" else 0
            for place, message in enumerate(row.messages):
                if message.get("role") != "assistant" or place < begin:
                    continue
                self.answers += 1
                if message.get("train") is not False:
                    continue
                self.marked += 1
                if len(self.cases) < MAX_CASES:
                    self.cases.append(
                        case_in_message(batch, row, place, ("marked as not to be trained on"))
                    )

    def unmet(self) -> Unmet | None:
        """Unmet without chats, and where somebody reads the marks."""
        reason = self._reason_not_to_judge()
        if reason is not None:
            return reason
        return None if self.answers else NO_CHATS

    def _reason_not_to_judge(self) -> Unmet | None:
        """Why marks are none of this rule's concern; None if nobody reads them."""
        if self.setup.trainer.name not in IGNORES_FLAGS:
            return Unmet("it is about rows that TRL, LLaMA-Factory or Axolotl trains")
        if self.spec.training.other.get(AXOLOTL_SETTING) or FLAGS & self.setup.columns_read:
            return Unmet("it is about marks of turns that nobody reads, and these are read")
        return None

    def measurement_if_clean(self) -> Measurement:
        """How many answers are marked as not to be trained."""
        return make_count_measurement(
            "answers marked as not to be trained", self.marked, self.answers
        )

    def findings(self) -> Iterator[Finding]:
        if not self.marked:
            return
        trainer = str(self.setup.trainer.name)
        yield self.finding(
            f"{self.marked:,} of {self.answers:,} answers are marked as not to be trained on (train: false, or a"
            f" weight of 0), but {trainer} ignores the mark and trains on them",
            REMEDIES[trainer],
            cases=self.cases,
            count=self.marked,
            total=self.answers,
        )
