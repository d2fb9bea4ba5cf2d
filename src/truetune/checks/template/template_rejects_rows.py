"""The chat template refuses rows.

## What it does
Groups the rows that the template raises on by what it says.

## Why it is bad
Such rows stop a run in the middle of its preparation, or are left out where a trainer catches the error.

## Example
```yaml
files:
  chat_template.jinja: >-
    {% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system role') }}{% endif %}
    <|im_start|>{{ m.role }}
    {{ m.content }}<|im_end|>
    {% endfor %}
data:
  - {messages: [{role: system, content: Be brief.}, {role: user, content: "Open?"}, {role: assistant, content: It is.}]}
```

## Use instead
```yaml
data:
  - {messages: [{role: system, content: Be brief.}, {role: user, content: "Open?"}, {role: assistant, content: It is.}]}
```

## Fix safety
Where the system role is refused, put its text in front of the first user message, in training and in serving alike.

## References
- axolotl-ai-cloud/axolotl#752, huggingface/trl#1233
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from truetune.checks.findings import SHOWN_CASES, Case, Finding
from truetune.checks.rule import MAX_CASES, DataRule, Setup
from truetune.encoding.batch import Batch


class TemplateRejectsRows(DataRule):
    code = "TT212"
    severity = "error"

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.rows = 0
        self.reasons: Counter[str] = Counter()
        self.cases: dict[str, Case] = {}

    def batch(self, batch: Batch) -> None:
        self.rows += len(batch.rows)
        if self.probes.template is None:
            return
        for row, reason in batch.rejected:
            self.reasons[reason] += 1
            if len(self.cases) < MAX_CASES:
                roles = ", ".join(str(message.get("role")) for message in row.messages[:8])
                self.cases.setdefault(reason, Case(f"roles: {roles}", row.origin))

    def findings(self) -> Iterator[Finding]:
        rejected = sum(self.reasons.values())
        if rejected:
            yield self.finding(
                f"{rejected:,} of {self.rows:,} rows can't be rendered: the chat template refuses them",
                "bring these rows into the form that the template takes, or choose another template with --template",
                evidence=[f"{count:,} rows: {reason}" for reason, count in self.reasons.most_common(SHOWN_CASES)],
                cases=self.cases.values(),
                count=rejected,
                total=self.rows,
            )
