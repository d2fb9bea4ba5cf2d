"""The chat template raises on rows.

## What it does
Groups the rows on which the template raises an error by its message. If `truetune fix` knows a fix, it is tried on some
rows of each group, and the help names the one with which they render.

## Why it is bad
Such rows stop a run during data preparation, or are dropped if a trainer catches the error.

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
If the system role is rejected, put its text in front of the first user message, both in training and in serving.

## References
- axolotl-ai-cloud/axolotl#752, huggingface/trl#1233
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.reasons_data_rules_cannot_judge import NO_CHATS, NO_TEMPLATE
from truetune.checks.rule import MAX_CASES, DataRule, Setup
from truetune.checks.template_refusal_cause import template_error_without_quoted_row_text
from truetune.encoding.batch import Batch

SHOWN_CAUSES = 8
"""Causes that are listed, each with its count"""
SHOWN_ROLES = 8


class TemplateRejectsRows(DataRule):
    code = "TPL011"
    fault = Fault.ROLES_NOT_ACCEPTED
    symptoms = ("loss-does-not-fall", "nothing-is-learned")
    severity = "error"
    stability = "stable"
    since = "0.1.0"

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.rows = self.chats = 0
        self.causes: Counter[str] = Counter()
        self.cases: list[Case] = []

    def add_batch(self, batch: Batch) -> None:
        """Count the chats on which the template raises, by cause."""
        self.rows += len(batch.rows)
        self.chats += batch.chats
        if self.probes.template is None:
            return
        for row, reason in batch.rejected:
            self.causes[template_error_without_quoted_row_text(row, reason)] += 1
            if len(self.cases) < MAX_CASES:
                roles = ", ".join(
                    str(message.get("role")) for message in row.messages[:SHOWN_ROLES]
                )
                self.cases.append(Case(f"{reason} (roles: {roles})", row.origin))

    def unmet(self) -> Unmet | None:
        """Unmet where no row is a chat, or there is no template."""
        if not self.chats:
            return NO_CHATS
        return NO_TEMPLATE if self.probes.template is None else None

    def measurement_if_clean(self) -> Measurement:
        """The number of chats on which the template raises."""
        return make_count_measurement(
            "chats on which the template raises", self.causes.total(), self.chats
        )

    def findings(self) -> Iterator[Finding]:
        rejected = self.causes.total()
        if not rejected:
            return
        listed = [
            f"{count:,} row{'s' * (count != 1)}: {cause}"
            for cause, count in self.causes.most_common(SHOWN_CAUSES)
        ]
        if len(self.causes) > SHOWN_CAUSES:
            listed.append(f"and {len(self.causes) - SHOWN_CAUSES:,} more causes")
        yield self.finding(
            f"{rejected:,} of {self.rows:,} rows can't be rendered: the chat template raises on them",
            "change the rows as the template's message says, or use another template (--template FILE) in training"
            " and serving",
            evidence=listed,
            cases=self.cases,
            count=rejected,
            total=self.rows,
        )
