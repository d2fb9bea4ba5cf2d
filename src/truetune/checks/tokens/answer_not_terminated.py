"""Trained answers have no stop token after them.

## What it does
Counts the trained assistant turns of chats after which the template writes no stop token.

## Why it is bad
Nothing in the loss shows where these answers end, so the model never stops after such a turn.

## Example
```yaml
files:
  chat_template.jinja: >-
    {% for m in messages %}{{ m.role }}: {{ m.content }}
    {% endfor %}{% if add_generation_prompt %}assistant: {% endif %}
data:
  - {messages: [{role: user, content: "Is it open?"}, {role: assistant, content: It is open.}]}
```

## Use instead
```yaml
data:
  - {messages: [{role: user, content: "Is it open?"}, {role: assistant, content: It is open.}]}
```

## Fix safety
Adding the EOS token after each assistant turn in the template is safe before training. After it, the model and its
template belong together: serve it with the same template.

## References
- huggingface/trl#5988, axolotl-ai-cloud/axolotl#3756
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.make_cases_at_tokens_and_turns import case_at_character
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.reasons_data_rules_cannot_judge import NO_TURNS
from truetune.checks.rule import MAX_CASES, DataRule, Setup
from truetune.checks.severity_by_trainer import MOOT, SeverityByFact
from truetune.encoding.batch import Batch
from truetune.render.rendering import Turn

WHOLE_EXAMPLE = -1
"""The turn of a span that holds the whole example"""


class AnswerNotTerminated(DataRule):
    code = "LEN008"
    fault = Fault.TRAINING_ANSWERS_LACK_STOP_TOKEN
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    # LLaMA-Factory writes turns with templates of its own, and these end each answer.
    by_trainer = (SeverityByFact("template", {"own": MOOT}),)

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.turns = self.open = 0
        self.cases: list[Case] = []

    def add_batch(self, batch: Batch) -> None:
        """Count the trained turns, and those without a stop token."""
        for i, (_, rendering) in enumerate(batch.examples):
            trained = {span.turn for span in rendering.spans}
            for turn in rendering.turns:
                # Where the whole example is learned, a turn whose text the template dropped has no
                # end to look for.
                is_written = turn.end > turn.start >= 0
                if turn.message in trained or (WHOLE_EXAMPLE in trained and is_written):
                    self._count_turn_and_keep_unterminated(batch, i, turn)

    def _count_turn_and_keep_unterminated(self, batch: Batch, example: int, turn: Turn) -> None:
        """Count a trained turn; one without a stop token is a case."""
        self.turns += 1
        if turn.stop_start >= 0:
            return
        self.open += 1
        if len(self.cases) < MAX_CASES:
            rendered = batch.examples[example].rendering.text
            # Some characters behind the end show what stands there instead of the stop token.
            text = f"ends with {rendered[max(0, turn.end - 24) : turn.end + 16]!r}"
            self.cases.append(case_at_character(batch, example, turn.end - 1, text, turn.message))

    def unmet(self) -> Unmet | None:
        """Unmet where there are no trained turns."""
        return None if self.turns else NO_TURNS

    def measurement_if_clean(self) -> Measurement:
        """The number of trained answers whose stop token is in the loss."""
        return make_count_measurement(
            "trained answers whose stop token is in the loss", self.turns - self.open, self.turns
        )

    def findings(self) -> Iterator[Finding]:
        if self.open:
            yield self.finding(
                f"{self.open:,} of {self.turns:,} trained answers end without a stop token, so the model won't learn"
                " to stop",
                "in the chat template, write the EOS token after each assistant turn ({{ message.content }}{{"
                " eos_token }})",
                cases=self.cases,
                count=self.open,
                total=self.turns,
            )
