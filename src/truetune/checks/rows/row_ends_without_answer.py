"""Conversations end with a turn of the user or of a tool, without an answer.

## What it does
Counts the chats whose last turn is not the assistant's. Rows that are only a prompt by their columns (preference rows,
prompts for reinforcement learning) don't count. It is a warning from 10 % of the chats, and an info below.

## Why it is bad
The last turn is not in the loss, so its tokens cost time and teach nothing. If all or most rows end like this, an
answer was cut off or lost on the way, and with it the end of the conversation that the model should learn.

## Example
```yaml
data:
  - {messages: [{role: user, content: "Open?"}, {role: assistant, content: It is.}, {role: user, content: "When?"}]}
  - {messages: [{role: user, content: "Is it open?"}, {role: assistant, content: It is.}]}
```

## Use instead
```yaml
data:
  - {messages: [{role: user, content: "Is it open?"}, {role: assistant, content: It is.}]}
  - {messages: [{role: user, content: "Is it open?"}, {role: assistant, content: It is.}]}
```

## Fix safety
Cutting off the last turn changes nothing in the loss. A lost answer has to come from the source of the rows.

## References
- LAION-AI/Open-Assistant#3217
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.make_cases_at_tokens_and_turns import case_in_message
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.reasons_data_rules_cannot_judge import NO_CHATS, PROMPTS_ALONE
from truetune.checks.rule import MAX_CASES, DataRule, Setup
from truetune.encoding.batch import Batch
from truetune.settings.training_settings import SAMPLES_ITS_ANSWERS

ASKING_ROLES = frozenset(("user", "tool", "function", "ipython"))
# Chosen; in LLaMA-Factory's demo data and tinker-cookbook's chats (eleven sets, 4,268 rows) no chat
# ends so. At 1 in 20 raw logs would warn; at 1 in 5 a splitter that loses the last turn of long
# chats would not.
WARNING_ONE_IN = 10
"""Share of the rows, as 1 in so many, from which it is a warning: a few conversations end so in most logs of chats"""


class RowEndsWithoutAnswer(DataRule):
    code = "ROW019"
    fault = Fault.TRAINING_ROWS_LACK_ANSWERS
    symptoms = ("garbage-output", "nothing-is-learned")
    severity = "warning"
    moot_where = ("roles-exchanged", "no-supervised-token")

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.chats = 0
        self.roles: Counter[str] = Counter()
        self.cases: list[Case] = []

    def add_batch(self, batch: Batch) -> None:
        """Count the chats of a batch that end in a turn of the user or of a tool."""
        if self.setup.spec.training.method in SAMPLES_ITS_ANSWERS:
            return
        for row in batch.rows:
            if not row.is_chat or row.is_preference:
                continue
            self.chats += 1
            # The preference pairs above end with their prompt; the answers stand in columns of
            # their own.
            role = str(row.messages[-1].get("role"))
            if role in ASKING_ROLES:
                self.roles[role] += 1
                if len(self.cases) < MAX_CASES:
                    self.cases.append(
                        case_in_message(
                            batch, row, len(row.messages) - 1, f"the last turn is a {role} turn"
                        )
                    )

    def unmet(self) -> Unmet | None:
        """Unmet without chats, and where the training samples its answers."""
        if self.setup.spec.training.method in SAMPLES_ITS_ANSWERS:
            return PROMPTS_ALONE
        return None if self.chats else NO_CHATS

    def measurement_if_clean(self) -> Measurement:
        """How many chats end in a turn of the user or of a tool."""
        return make_count_measurement(
            "chats that end in a turn of the user or of a tool", self.roles.total(), self.chats
        )

    def findings(self) -> Iterator[Finding]:
        count = self.roles.total()
        if count:
            roles = ", ".join(f"{role} ({rows:,})" for role, rows in self.roles.most_common())
            yield self.finding(
                f"{count:,} of {self.chats:,} conversations end without an answer, in a turn of:"
                f" {roles}",
                "check in the source whether the last answer was lost, and add it; otherwise cut off the last turn,"
                " which is not in the loss",
                severity="warning" if count * WARNING_ONE_IN >= self.chats else "info",
                cases=self.cases,
                count=count,
                total=self.chats,
            )
