"""Earlier turns are not in the loss, because the template rewrites them in a single example.

## What it does
With `history: single`, counts the assistant turns whose text changes once the next turn follows. No position of that
one example can train them as they will be served. Turns that lose their reasoning are reported by
`thinking-stripped-from-history`.

## Why it is bad
The earlier answers of each chat teach nothing: a template that closes a turn only at the very end leaves all but the
last answer without a label.

## Example
```yaml
spec: {history: single}
files:
  chat_template.jinja: "{% for m in messages %}<|im_start|>{{ m.role }}\\n{{ m.content }}{% if loop.last or m.role == 'user' %}<|im_end|>{% endif %}\\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\\n{% endif %}"
data:
  - messages:
      - {role: user, content: One.}
      - {role: assistant, content: Two.}
      - {role: user, content: Three.}
      - {role: assistant, content: Four.}
```

## Use instead
```yaml
files:
  chat_template.jinja: "{% for m in messages %}<|im_start|>{{ m.role }}\\n{{ m.content }}{% if loop.last or m.role == 'user' %}<|im_end|>{% endif %}\\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\\n{% endif %}"
data:
  - messages:
      - {role: user, content: One.}
      - {role: assistant, content: Two.}
      - {role: user, content: Three.}
      - {role: assistant, content: Four.}
```

## Fix safety
`history: as-served` makes one example per assistant turn, each as the model sees it at inference. There are more
examples, so an epoch takes longer.

## References
- huggingface/trl#6433, THUDM/slime#330, NVIDIA-NeMo/Automodel#3024
"""  # noqa: E501

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.make_cases_at_tokens_and_turns import case_at_turn
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.reasons_data_rules_cannot_judge import NO_TURNS
from truetune.checks.rule import MAX_CASES, DataRule, Setup
from truetune.checks.template.evidence.does_learned_message_hold_reasoning import holds_reasoning
from truetune.encoding.batch import Batch
from truetune.render.inference_contract import REWRITTEN


class RewrittenTurnsUntrained(DataRule):
    code = "TPL012"
    fault = Fault.EARLIER_TURNS_REWRITTEN_BY_TEMPLATE
    symptoms = ("nothing-is-learned",)
    severity = "warning"
    stability = "stable"
    since = "0.1.0"

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.turns = self.lost = 0
        self.cases: list[Case] = []

    def add_batch(self, batch: Batch) -> None:
        """Count the assistant turns, and those that the template rewrites, but for turns with
        reasoning.
        """
        if self.spec.history != "single" or self.spec.learn.what != "assistant":
            return
        # Turns that lose their reasoning are left to thinking-stripped-from-history.
        for i, (row, rendering) in enumerate(batch.examples):
            for turn in rendering.turns:
                self.turns += 1
                if turn.skew == REWRITTEN and not holds_reasoning(row.messages[turn.message]):
                    self.lost += 1
                    if len(self.cases) < MAX_CASES:
                        self.cases.append(case_at_turn(batch, i, turn, turn.skew))

    def unmet(self) -> Unmet | None:
        """Unmet where the assistant turns are not trained in one example, or there are none."""
        if self.spec.history != "single" or self.spec.learn.what != "assistant":
            return Unmet(
                "it is about every assistant turn in one example (--history single --learn"
                " assistant)"
            )
        return None if self.turns else NO_TURNS

    def measurement_if_clean(self) -> Measurement:
        """The number of assistant turns that are not trained because the template rewrites them."""
        return make_count_measurement(
            "assistant turns that are not trained because the template rewrites them",
            self.lost,
            self.turns,
        )

    def findings(self) -> Iterator[Finding]:
        if self.lost:
            yield self.finding(
                f"{self.lost:,} of {self.turns:,} assistant turns are not in the loss: the template rewrites them"
                " once the next turn follows",
                "set `history: as-served` (--history as-served), which makes one example per assistant turn",
                cases=self.cases,
                count=self.lost,
                total=self.turns,
            )
