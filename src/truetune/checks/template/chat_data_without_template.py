"""The data are chats, but the tokenizer has no chat template.

## What it does
Counts the chats if there is no template to render them.

## Why it is bad
Trainers reject such rows, or fall back to their own format, which the server does not know.

## Example
```yaml
files:
  chat_template.jinja: null
data:
  - {messages: [{role: user, content: "Is it open?"}, {role: assistant, content: It is open.}]}
```

## Use instead
```yaml
data:
  - {messages: [{role: user, content: "Is it open?"}, {role: assistant, content: It is open.}]}
```

## Fix safety
A template adds its own control tokens. For a base model, choose one whose tokens the model has seen, and save it with
the tokenizer so that the server uses the same.

## References
- huggingface/trl#1233, hiyouga/LLaMA-Factory#5836
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.reasons_data_rules_cannot_judge import NO_CHATS
from truetune.checks.rule import MAX_CASES, DataRule, Setup
from truetune.encoding.batch import Batch


class ChatDataWithoutTemplate(DataRule):
    code = "TPL009"
    fault = Fault.CHAT_MODEL_TRAINED_WITHOUT_TEMPLATE
    symptoms = ("garbage-output", "nothing-is-learned")
    severity = "error"
    stability = "stable"
    since = "0.1.0"

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.rows = self.chats = 0
        self.cases: list[Case] = []

    def add_batch(self, batch: Batch) -> None:
        """Count the rows and the chats; the first chats are cases where the tokenizer has no
        template.
        """
        self.rows += len(batch.rows)
        if self.probes.template is not None:
            self.chats += batch.chats
            return
        for row in batch.rows:
            if row.is_chat:
                self.chats += 1
                if len(self.cases) < MAX_CASES:
                    self.cases.append(Case(f"a chat of {len(row.messages)} messages", row.origin))

    def unmet(self) -> Unmet | None:
        """Unmet where no row is a chat."""
        return None if self.chats else NO_CHATS

    def measurement_if_clean(self) -> str:
        """That the tokenizer has a chat template, and how many rows are chats."""
        return f"the tokenizer has a chat template; rows that are chats: {self.chats:,}"

    def findings(self) -> Iterator[Finding]:
        if self.chats and self.probes.template is None:
            yield self.finding(
                f"{self.chats:,} of {self.rows:,} rows are chats, but the tokenizer has no chat template: trainers"
                " reject them or use their own format",
                "use the tokenizer of the instruct model, or give a template file with --template and save it as"
                " chat_template.jinja next to the tokenizer",
                evidence=[
                    f"no chat_template.jinja and no chat_template in {self.tokenizer.folder}"
                ],
                cases=self.cases,
                count=self.chats,
                total=self.rows,
            )
