"""A term of a custom policy loss has the wrong sign: training moves away from its goal.

## What it does
Expands what `backward()` is called on into a sum of signed terms, following variables and functions. If the loss has a
policy gradient (a log-probability or a ratio, times an advantage or a reward), it fires if that product has no minus,
if an entropy is added, if a KL divergence is subtracted, and if PPO's clipping takes the larger of two objectives. It
does not report optimizers with `maximize=True` and unlearning losses.

## Why it is bad
An optimizer minimises the loss. Without the minus, bad answers become more likely. An added entropy makes the policy
deterministic within some hundred steps. A subtracted divergence drives it away from the reference. The larger objective
lets through steps that clipping should stop. The curves move as in a normal run.

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
There is no automatic fix: if a name says the opposite of its value, the loss is right. After the fix, train the policy
again from its initial weights.

## References
- nebuly-ai/optimate#250
- openai/baselines#1156
- muupan/async-rl#22
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
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
    "policy": "the policy gradient has no minus: minimising this loss makes answers with a high advantage less likely",
    "entropy": "the entropy is added to the loss, which is minimised: the policy becomes deterministic",
    "divergence": "the divergence from the reference is subtracted from the loss: the policy is driven away from the"
    " reference",
    "clipping": "the clipped objective takes the larger of the two: it lets through steps that clipping should stop",
}
REMEDIES = {
    "policy": "put a minus before the product: loss = -(ratio * advantages).mean()",
    "entropy": "subtract it: loss = policy_loss - coefficient * entropy",
    "divergence": "add it: loss = policy_loss + beta * kl",
    "clipping": "use loss = -torch.min(ratio * advantages, clipped_ratio * advantages).mean()",
}


def _policy_losses(module: Module) -> Iterator[ast.AST]:
    """The losses of files that have advantages or rewards."""
    if ADVANTAGE.search(module.text):
        yield from backward_losses(module)


class PolicyLossWithWrongSign(SourceRule):
    code = "SRC524"
    fault = Fault.POLICY_LOSS_WRONG
    symptoms = ("reward-does-not-rise", "nothing-is-learned")
    severity = "error"
    looks_at = CodePlaces("losses of own policy training", _policy_losses)

    def findings(self) -> Iterator[Finding]:
        """Findings on terms of policy losses that have the wrong sign."""
        for wrong_sign in wrong_signs(self.subject):
            cases = [case_of_node(self.subject, wrong_sign.node)]
            if wrong_sign.loss is not wrong_sign.node:
                cases.append(case_of_node(self.subject, wrong_sign.loss))
            yield self.finding(MESSAGES[wrong_sign.kind], REMEDIES[wrong_sign.kind], cases=cases)
