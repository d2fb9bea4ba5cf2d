"""The serving prompt is not the beginning of the training text.

## What it does
For each assistant turn, renders the conversation before it with the generation prompt, and checks whether the training
text begins with that, character by character.

## Why it is bad
The model is trained after one text and prompted with another. Trainers that find the answer by the length of the prompt
also mask the wrong tokens: the header gets labels, or the first tokens of the answer don't.

## Example
```yaml
files:
  chat_template.jinja: >-
    {% for m in messages %}<|im_start|>{{ m.role }}
    {{ m.content }}<|im_end|>
    {% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
    <think>
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
If the generation prompt opens a think block, give the rows their reasoning or serve with thinking off
(`template_kwargs`). Editing the template changes what every later user of the model must send.

## References
- huggingface/trl#5213, huggingface/trl#6433, NVIDIA-NeMo/Automodel#3024, NVIDIA-NeMo/Automodel#3352, THUDM/slime#330
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import SHOWN_CASES, Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.make_cases_at_tokens_and_turns import case_at_turn
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import MAX_CASES, DataRule, Setup
from truetune.encoding.batch import Batch
from truetune.render.inference_contract import NO_PROMPT, REWRITTEN


class ChatTemplateNotPrefixStable(DataRule):
    code = "TPL003"
    fault = Fault.EARLIER_TURNS_REWRITTEN_BY_TEMPLATE
    symptoms = ("garbage-output",)
    severity = "warning"
    stability = "stable"
    since = "0.1.0"

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.turns = self.compared = 0
        self.reasons: Counter[str] = Counter()
        self.cases: dict[str, Case] = {}

    def add_batch(self, batch: Batch) -> None:
        """Count the assistant turns that follow another text in training than in serving, by
        reason.
        """
        for i, (_, rendering) in enumerate(batch.examples):
            for turn in rendering.turns:
                self.turns += 1
                # A turn without a prompt has nothing to compare with; rewritten turns are split, or
                # told elsewhere.
                if turn.skew in (NO_PROMPT, REWRITTEN):
                    continue
                self.compared += 1
                if turn.skew is not None:
                    self.reasons[turn.skew] += 1
                    if len(self.cases) < MAX_CASES and turn.skew not in self.cases:
                        self.cases[turn.skew] = case_at_turn(batch, i, turn, turn.skew)

    def unmet(self) -> Unmet | None:
        """Unmet where no example has an assistant turn after a prompt."""
        if self.compared:
            return None
        return Unmet("it is about assistant turns after a prompt, and no example has one")

    def measurement_if_clean(self) -> Measurement:
        """The number of assistant turns that follow another text in training than in serving."""
        return make_count_measurement(
            "assistant turns that follow another text in training than in serving",
            self.reasons.total(),
            self.compared,
        )

    def findings(self) -> Iterator[Finding]:
        skewed = sum(self.reasons.values())
        if skewed:
            yield self.finding(
                f"{skewed:,} of {self.turns:,} assistant turns follow another text in training than"
                " in serving",
                "train on the text that is served: put the reasoning into the rows, or turn thinking off in"
                " training and serving (template_kwargs: {enable_thinking: false})",
                evidence=[
                    f"{count:,} turns: {reason}"
                    for reason, count in self.reasons.most_common(SHOWN_CASES)
                ],
                cases=self.cases.values(),
                count=skewed,
                total=self.turns,
            )
