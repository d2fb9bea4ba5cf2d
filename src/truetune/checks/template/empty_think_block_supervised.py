"""Answers without reasoning begin with an empty think block that is in the loss.

## What it does
Looks at the text between the serving prompt and the first character of the answer: an opened and closed think block
with nothing in it, with labels.

## Why it is bad
The model learns that thinking means closing the block at once. If the generation prompt contains the empty block
(thinking off), the model need not write it, and it is not in the loss.

## Example
```yaml
files:
  chat_template.jinja: >-
    {% for m in messages %}<|im_start|>{{ m.role }}
    {% if m.role == 'assistant' %}<think>
    </think>
    {% endif %}{{ m.content }}<|im_end|>
    {% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
    {% endif %}
data:
  - {messages: [{role: user, content: "Is it open?"}, {role: assistant, content: It is open.}]}
```

## Use instead
```yaml
data:
  - {messages: [{role: user, content: "Is it open?"}, {role: assistant, content: It is open.}]}
```

## Fix safety
`template_kwargs: {enable_thinking: false}` is right for a model that will be served without thinking. For one that is
served with thinking, give the rows their reasoning instead.

## References
- NVIDIA-NeMo/Automodel#3738, NVIDIA-NeMo/Automodel#3739, QwenLM/Qwen3.8#131
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.make_cases_at_tokens_and_turns import case_at_character
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.reasons_data_rules_cannot_judge import NO_TURN_TRAINED_ALONE
from truetune.checks.rule import MAX_CASES, DataRule, Setup
from truetune.encoding.batch import Batch

# As the published templates spell them. A block closes with its own tag, or with that of a channel.
EMPTY_THINK_BLOCK = re.compile(
    r"\s*<(think|thinking|\|channel>thought|seed:think)>\s*</?(?:\1|channel\|)>"
)


class EmptyThinkBlockSupervised(DataRule):
    code = "TPL005"
    fault = Fault.REASONING_TRAINED_IN_ANOTHER_FORM
    symptoms = ("nothing-is-learned",)
    severity = "warning"
    stability = "stable"
    since = "0.1.0"

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.turns = self.empty = 0
        self.cases: list[Case] = []

    def add_batch(self, batch: Batch) -> None:
        """Count the trained turns, and those that begin with an empty think block."""
        for i, (_, rendering) in enumerate(batch.examples):
            for span in rendering.spans:
                if span.turn < 0:  # the whole example is learned, generation prompts with it
                    continue
                self.turns += 1
                match = EMPTY_THINK_BLOCK.match(rendering.text, span.start, span.end)
                if match is not None:
                    self.empty += 1
                    if len(self.cases) < MAX_CASES:
                        at = match.start(1) - 1
                        self.cases.append(
                            case_at_character(batch, i, at, f"in the loss: {match[0]!r}", span.turn)
                        )

    def unmet(self) -> Unmet | None:
        """Unmet where no turn is trained by itself."""
        return None if self.turns else NO_TURN_TRAINED_ALONE

    def measurement_if_clean(self) -> Measurement:
        """The number of trained turns that begin with an empty think block."""
        return make_count_measurement(
            "trained turns that begin with an empty think block", self.empty, self.turns
        )

    def findings(self) -> Iterator[Finding]:
        if self.empty:
            yield self.finding(
                f"{self.empty:,} of {self.turns:,} trained turns begin with an empty think block that is in the"
                " loss: the model learns not to think",
                "if you serve without thinking, set template_kwargs: {enable_thinking: false} in training and"
                " serving; if you serve with it, give the rows their reasoning (reasoning_content)",
                cases=self.cases,
                count=self.empty,
                total=self.turns,
            )
