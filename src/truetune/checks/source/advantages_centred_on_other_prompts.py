"""Advantages are centred on the rewards of other prompts, not on those of the prompt's own group.

## What it does
Looks at policy training by hand (GRPO and the like) that samples several completions for each prompt. It fires if the
baseline of the advantages is a mean over all groups, over the first dimension of `(prompts, k)`, over one of the groups
(`groups[:1].mean()`), or over the flat rewards of several prompts. Advantages that were centred in their group before,
files that name REINFORCE, and a single prompt with k completions are not reported.

## Why it is bad
The difficulty of the prompt becomes part of the advantage: completions of an easy prompt are above the mean whatever
they say, and those of a hard prompt below it. The policy is rewarded for prompts that it did not choose, and the
gradient's noise hides which completions are better.

## Example
```python
import torch

K = 8
for rows in batches:
    texts = [row["prompt"] for row in rows for _ in range(K)]
    answers = sample(policy, texts)
    rewards = torch.tensor([score(p, a) for p, a in zip(texts, answers)])
    groups = rewards.view(-1, K)
    advantages = (groups - groups.mean()).view(-1)
    loss = -(logps_of(policy, texts, answers) * advantages).mean()
    loss.backward()
```

## Use instead
```python
import torch

K = 8
for rows in batches:
    texts = [row["prompt"] for row in rows for _ in range(K)]
    answers = sample(policy, texts)
    rewards = torch.tensor([score(p, a) for p, a in zip(texts, answers)])
    groups = rewards.view(-1, K)
    advantages = (groups - groups.mean(dim=1, keepdim=True)).view(-1)
    loss = -(logps_of(policy, texts, answers) * advantages).mean()
    loss.backward()
```

## Fix safety
There is no automatic fix: advantages change, and the training has to be repeated. A spread over the whole batch is a
known variant, a mean over the whole batch is not one of GRPO.

## References
- ServiceNow/PipelineRL#54 (one group's mean for all), XU-YIJIE/grpo-flat#2 (the mean of the batch)
- GRPO (arXiv:2402.03300), section 4.1
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.baselines_of_other_groups import (
    baselines_of_other_groups,
    centrings,
)
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node


class AdvantagesCentredOnOtherPrompts(SourceRule):
    code = "SRC544"
    fault = Fault.COMPLETIONS_GROUPED_ACROSS_PROMPTS
    symptoms = ("nothing-is-learned",)
    severity = "warning"
    looks_at = CodePlaces("baselines of rewards in own policy training", centrings)

    def findings(self) -> Iterator[Finding]:
        """Findings on means over other prompts."""
        for foreign_baseline in baselines_of_other_groups(self.subject):
            of = (
                "one group's rewards"
                if foreign_baseline.is_one_group
                else "rewards of several prompts"
            )
            yield self.finding(
                f"the baseline {ast.unparse(foreign_baseline.mean)} is a mean of {of}, though each prompt has a"
                " group of its own:"
                " answers to easy prompts get positive advantages, and those to hard ones negative, whatever they say",
                "subtract the group's own mean: groups = rewards.view(-1, k), with the k completions of a prompt next"
                " to each other, and groups - groups.mean(dim=1, keepdim=True)",
                cases=[
                    case_of_node(self.subject, foreign_baseline.centring),
                    case_of_node(self.subject, foreign_baseline.copies),
                ],
            )
