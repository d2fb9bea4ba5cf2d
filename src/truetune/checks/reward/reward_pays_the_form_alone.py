r"""A reward function for a form pays for the form with nothing in it.

## What it does
For functions that take no reference: scores each form with a text in it and with nothing in it. It fires where one
with nothing in it gets the most that any form gets.

## Why it is bad
It is a fact and often meant so. Beside a reward for the answer that is rarely given, the policy learns the form
alone: empty tags.

## Example
```yaml
reward: |
  import re

  def form(completions, **kwargs):
      return [1.0 if re.fullmatch(r"<answer>.*</answer>", text) else 0.0 for text in completions]
rows:
  - {prompt: "What is 5 + 7?", answer: "12"}
  - {prompt: "What is 30 * 41?", answer: "1230"}
```

## Use instead
```yaml
reward: |
  import re

  def form(completions, **kwargs):
      return [1.0 if re.fullmatch(r"<answer>.*\w.*</answer>", text) else 0.0 for text in completions]
rows:
  - {prompt: "What is 5 + 7?", answer: "12"}
  - {prompt: "What is 30 * 41?", answer: "1230"}
```

## Fix safety
There is no automatic fix.

## References
- Liuziyu77/Visual-RFT#176
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.reward.cases_of_scored_completions import format_reward, quote_completion
from truetune.checks.rule import RewardRule
from truetune.generation.reward_trial import is_at_least


class RewardPaysTheFormAlone(RewardRule):
    code = "RWD014"
    fault = Fault.REWARD_PAID_WITHOUT_ANSWER
    severity = "info"
    symptoms = ("reward-rises-model-is-worse",)

    def unmet(self) -> Unmet | None:
        """Unmet for functions that look at the answer, or at nothing."""
        if self.subject.depends_on == "form" and not self.subject.reference_column:
            return None
        return Unmet("it is about rewards for the form, and this one reads the answer or nothing")

    def measurement_if_clean(self) -> Measurement:
        """How many forms are paid with nothing in them."""
        count = len(self.subject.forms)
        return make_count_measurement("forms with nothing in them that are paid the most", 0, count)

    def findings(self) -> Iterator[Finding]:
        """The finding on forms that are paid the most with nothing in them."""
        if self.unmet() is not None:
            return
        forms = self.subject.forms
        most = max((form.right for form in forms if form.right is not None), default=None)
        hollow = [form for form in forms if is_at_least(form.hollow, most)]
        if hollow:
            yield self.finding(
                f"{self.subject.name} gives its highest score, {format_reward(most)}, for a form with nothing in it",
                "use it beside a reward for the answer, with a smaller weight",
                cases=[
                    Case(f"{quote_completion(form.empty)} gets {format_reward(form.hollow)}")
                    for form in hollow
                ],
                count=len(hollow),
                total=len(forms),
            )
