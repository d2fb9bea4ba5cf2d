"""A term of an own policy loss has the wrong sign: the training moves away from what it is to reach.

## What it does
Writes what `backward()` is called on as a sum of terms with signs, through the names and functions that it is made of.
Beside a policy gradient (a log-probability or a ratio, times an advantage or a reward) it fires where that product has
no minus, where an entropy is added, where a KL divergence is subtracted, and where PPO's clipping takes the larger of
two objectives. Optimizers with `maximize=True` and losses of unlearning are left alone.

## Why it is bad
An optimizer makes the loss small. Without the minus, bad answers become likelier; an added entropy makes the policy
certain within some hundred steps; a subtracted divergence drives it off its reference; the larger objective lets steps
pass that the clipping is to stop. The curves look busy all the same.

## Example
```python
import torch

for batch in batches:
    logps = logps_of(policy, batch)
    ratio = torch.exp(logps - batch["old_logps"])
    loss = (ratio * batch["advantages"]).mean()
    loss.backward()
```

## Use instead
```python
import torch

for batch in batches:
    logps = logps_of(policy, batch)
    ratio = torch.exp(logps - batch["old_logps"])
    loss = -(ratio * batch["advantages"]).mean()
    loss.backward()
```

## Fix safety
There is no automatic fix: where a name says the opposite of its value, the loss is right. The policy has to be trained
again from where it started.

## References
- nebuly-ai/optimate#250
- openai/baselines#1156
- muupan/async-rl#22
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.wrong_signs_of_policy_losses import (
    ADVANTAGE,
    backward_losses,
    wrong_signs,
)
from truetune.source.parsed_source_file import Module

MESSAGES = {
    "policy": "the policy gradient has no minus: the loss becomes small where answers with a high advantage become"
    " unlikely",
    "entropy": "the entropy is added to the loss, which is made small: the policy is driven to be certain",
    "divergence": "the divergence to the reference is subtracted from the loss: the policy is driven away from it",
    "clipping": "the clipped objective is the larger one of the two: steps pass that the clipping is to stop",
}
REMEDIES = {
    "policy": "put a minus before the product: loss = -(ratio * advantages).mean()",
    "entropy": "subtract it: loss = policy_loss - coefficient * entropy",
    "divergence": "add it: loss = policy_loss + beta * kl",
    "clipping": "take torch.min of the two objectives and put a minus before it, or torch.max of both with a minus",
}


def _policy_losses(module: Module) -> Iterator[ast.AST]:
    """The losses of files that have advantages or rewards."""
    if ADVANTAGE.search(module.text):
        yield from backward_losses(module)


class PolicyLossWithWrongSign(SourceRule):
    code = "SRC524"
    symptoms = ("nothing-is-learned",)
    severity = "error"
    looks_at = CodePlaces("losses of own policy training", _policy_losses)

    def findings(self) -> Iterator[Finding]:
        """Findings on terms of policy losses that have the wrong sign."""
        for found in wrong_signs(self.subject):
            cases = [case_of_node(self.subject, found.node)]
            if found.loss is not found.node:
                cases.append(case_of_node(self.subject, found.loss))
            yield self.finding(MESSAGES[found.kind], REMEDIES[found.kind], cases=cases)
