"""The old log-probabilities are taken again at each update, so the importance ratio is always 1 and never clipped.

## What it does
Looks for an importance ratio `exp(new - old)` in a loop of several epochs over one batch of answers. It fires if `old`
is `new.detach()`, or the same pass once more, inside of that loop. With a single update on each batch this is right,
and is not reported.

## Why it is bad
From the second epoch on the policy is no longer the one that sampled the answers. PPO and GRPO bound the step by
clipping the ratio to the policy that sampled. A ratio that is always 1 is never clipped: the epochs are unbounded
policy-gradient steps on stale answers, and the share of clipped ratios in the log is 0.

## Example
```python
import torch

for batch in rollouts:
    for epoch in range(4):
        logps = logps_of(policy, batch)
        old_logps = logps.detach()
        ratio = torch.exp(logps - old_logps)
        clipped = torch.clamp(ratio, 0.8, 1.2)
        loss = -torch.min(ratio * batch["advantages"], clipped * batch["advantages"]).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
```

## Use instead
```python
import torch

for batch in rollouts:
    with torch.no_grad():
        old_logps = logps_of(policy, batch)
    for epoch in range(4):
        logps = logps_of(policy, batch)
        ratio = torch.exp(logps - old_logps)
        clipped = torch.clamp(ratio, 0.8, 1.2)
        loss = -torch.min(ratio * batch["advantages"], clipped * batch["advantages"]).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
```

## Fix safety
There is no automatic fix: take the old log-probabilities once, before the first update on the answers. Steps become
smaller, so the learning rate may be raised again.

## References
- Chi-Shan0707/TinyLoRA-GRPO-Coder#4; PPO (arXiv:1707.06347), section 3
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.ratios_to_the_same_pass import log_ratios, ratios_of_one_pass


class OldLogProbabilitiesTakenAtEachStep(SourceRule):
    code = "SRC545"
    fault = Fault.POLICY_LOSS_WRONG
    symptoms = ("nothing-is-learned",)
    severity = "warning"
    looks_at = CodePlaces("importance ratios", log_ratios)

    def findings(self) -> Iterator[Finding]:
        """Findings on ratios that are always 1."""
        module = self.subject
        for ratio_of_one_pass in ratios_of_one_pass(module):
            yield self.finding(
                f"the old log-probabilities are {ast.unparse(ratio_of_one_pass.old)}, taken in each of"
                f" {ratio_of_one_pass.epochs} epochs on the"
                " same answers: the ratio is always 1, so clipping never acts and nothing bounds the update",
                "compute the old log-probabilities once before the loop over epochs, under torch.no_grad()",
                cases=[
                    case_of_node(module, ratio_of_one_pass.ratio),
                    case_of_node(module, ratio_of_one_pass.old),
                ],
            )
