"""Answers are sampled at one temperature, but the policy loss takes log-probabilities at another.

## What it does
Looks at files with a policy loss of their own that sample answers at a known temperature (`generate`, `SamplingParams`,
`GenerationConfig`). It fires if this is below 0.9 or above 1.1, and the log-probabilities of the loss come from logits
that are divided by nothing.

## Why it is bad
The gradient of the expected reward needs the log-probabilities of the policy that sampled. At temperature 0.7 that
policy is sharper than the one in the loss: unlikely tokens get far too large a weight. The gradient is biased, and
training may become unstable. Ratios to log-probabilities that the engine returned begin far from 1.

## Example
```python
import torch

for batch in batches:
    ids = policy.generate(**batch["prompts"], do_sample=True, temperature=0.6)
    logits = policy(ids).logits[:, :-1]
    logps = torch.log_softmax(logits, dim=-1).gather(-1, ids[:, 1:, None]).squeeze(-1)
    advantages = advantages_of(batch, ids)
    loss = -(logps * advantages).mean()
    loss.backward()
```

## Use instead
```python
import torch

TEMPERATURE = 0.6
for batch in batches:
    ids = policy.generate(**batch["prompts"], do_sample=True, temperature=TEMPERATURE)
    logits = policy(ids).logits[:, :-1] / TEMPERATURE
    logps = torch.log_softmax(logits, dim=-1).gather(-1, ids[:, 1:, None]).squeeze(-1)
    advantages = advantages_of(batch, ids)
    loss = -(logps * advantages).mean()
    loss.backward()
```

## Fix safety
Divide the logits of policy, old policy and reference alike, or sample at 1.0. The loss changes, so the training has to
be repeated.

## References
- huggingface/trl#3029, OpenRLHF/OpenRLHF#857, databricks/compose-rl#105
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.temperatures_of_sampling_and_loss import (
    sampling_temperatures,
    unscaled_losses,
)


class LogProbabilitiesAtAnotherTemperature(SourceRule):
    code = "SRC546"
    fault = Fault.POLICY_LOSS_WRONG
    symptoms = ("nothing-is-learned",)
    severity = "warning"
    looks_at = CodePlaces("generations of own policy training", sampling_temperatures)

    def findings(self) -> Iterator[Finding]:
        """Findings on losses whose logits lack the temperature."""
        for unscaled_loss in unscaled_losses(self.subject):
            yield self.finding(
                f"answers are sampled at temperature {unscaled_loss.temperature:g}, but the loss takes their"
                " log-probabilities from logits that are not divided by it: its gradient is that of another policy",
                f"divide the logits by TEMPERATURE ({unscaled_loss.temperature:g}) before log_softmax, for policy"
                " and reference alike, or sample at temperature 1.0",
                cases=[
                    case_of_node(self.subject, unscaled_loss.log_softmax),
                    case_of_node(self.subject, unscaled_loss.sampling),
                ],
            )
