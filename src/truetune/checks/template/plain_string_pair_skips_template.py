"""Prompts and completions are plain strings, but the model is a chat model.

## What it does
Counts prompt/completion rows and preference pairs of plain strings if the tokenizer has a chat template and none of its
control tokens is in the row.

## Why it is bad
Trainers join such strings as they are. Servers send prompts through the chat template, so the model gets a format that
it was never trained on: "it learns nothing", repetition, no stop.

## Example
```yaml
spec: {append_eos: true}
data:
  - {prompt: "Is it open?", completion: " It is open."}
```

## Use instead
```yaml
data:
  - {prompt: [{role: user, content: "Is it open?"}], completion: [{role: assistant, content: "It is open."}]}
```

## Fix safety
Rows of messages go through the template. For a model that is served on plain text without a template, the strings are
right: use `--ignore plain-string-pair-skips-template`.

## References
- huggingface/trl#3468, huggingface/trl#3140, huggingface/trl#1233
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.make_cases_at_tokens_and_turns import case_in_row
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.reasons_data_rules_cannot_judge import explain_missing_template
from truetune.checks.rule import MAX_CASES, DataRule, Setup
from truetune.checks.severity_by_trainer import MOOT, SeverityByFact
from truetune.encoding.batch import Batch
from truetune.render.template_probes import ANSWER, QUESTION, alternating_chat


class PlainStringPairSkipsTemplate(DataRule):
    code = "TPL010"
    fault = Fault.CHAT_MODEL_TRAINED_WITHOUT_TEMPLATE
    symptoms = ("garbage-output", "dpo-without-effect")
    severity = "warning"
    stability = "stable"
    since = "0.1.0"
    by_trainer = (SeverityByFact("template", {"own": MOOT}),)

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        text = setup.probes.text(alternating_chat(QUESTION, ANSWER)) or ""
        between = (
            text[text.find(QUESTION) + len(QUESTION) : text.find(ANSWER)] if ANSWER in text else ""
        )
        # What the template writes between question and answer: rows that were rendered beforehand
        # hold it.
        self.header = between.strip()
        self.pairs = self.bare = self.preferences = 0
        self.cases: list[Case] = []

    def add_batch(self, batch: Batch) -> None:
        """Count the rows of prompt and completion, and those without the template's header."""
        for row in batch.rows:
            if row.prompt is not None and row.completion is not None:
                self.pairs += 1
                if self.header and self.header not in row.prompt + row.completion:
                    self.bare += 1
                    self.preferences += row.rejected is not None
                    if len(self.cases) < MAX_CASES:
                        self.cases.append(case_in_row(batch, row, f"prompt {row.prompt[-60:]!r}"))

    def unmet(self) -> Unmet | None:
        """Unmet where there are no prompts with completions, no template, or none that writes a
        header before answers.
        """
        if not self.pairs:
            return Unmet("it is about prompts and completions in plain strings, and there are none")
        lacking = explain_missing_template(self.probes)
        if lacking is not None:
            return lacking
        return (
            None
            if self.header
            else Unmet("it is about templates that write something between prompt and answer")
        )

    def measurement_if_clean(self) -> Measurement:
        """The number of rows of prompt and completion without the template's header between them."""
        return make_count_measurement(
            f"rows of prompt and completion without {self.header!r} between them",
            self.bare,
            self.pairs,
        )

    def findings(self) -> Iterator[Finding]:
        if self.bare:
            what, columns = "prompt/completion rows", "prompt and completion"
            if self.preferences == self.bare:
                what, columns = "preference pairs", "prompt, chosen and rejected"
            yield self.finding(
                f"{self.bare:,} of {self.pairs:,} {what} are plain strings, which skip the tokenizer's chat template"
                " that servers use",
                f'write {columns} as lists of messages ([{{"role": "user", "content": ...}}]), so that they go'
                " through the chat template",
                evidence=[f"the template would put {self.header!r} between prompt and answer"],
                cases=self.cases,
                count=self.bare,
                total=self.pairs,
            )
