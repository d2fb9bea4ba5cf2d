"""A reward function rewards distance: the further a completion is from the target, the higher its reward.

## What it does
Expands what a GRPO reward function, or verl's `compute_score`, returns for each completion into a sum of signed terms,
and looks for distances: `abs(a - b)`, `(a - b) ** 2`, an edit distance, an error rate. It fires if the reward grows
with all of them. `-distance`, `1 - distance`, `1 / (1 + distance)` and `exp(-distance)` fall with it. It does not
report functions whose name says that a distance is wanted or penalised, and trainers with `reward_weights`.

## Why it is bad
GRPO maximises the reward. The mean reward rises as expected, but the model learns to be as far from the target as it
can: the longest answers, or the least similar ones.

## Example
```python
from trl import GRPOTrainer

def reward_length(completions, **kwargs):
    return [abs(200 - len(completion)) for completion in completions]

trainer = GRPOTrainer(model="model", reward_funcs=reward_length, train_dataset=rows)
trainer.train()
```

## Use instead
```python
from trl import GRPOTrainer

def reward_length(completions, **kwargs):
    return [-abs(200 - len(completion)) for completion in completions]

trainer = GRPOTrainer(model="model", reward_funcs=reward_length, train_dataset=rows)
trainer.train()
```

## Fix safety
There is no automatic fix. The training must be repeated from its initial weights.

## References
- huggingface/trl#2771
- NVlabs/alpamayo-recipes#29
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.rewards_that_grow_with_a_distance import (
    rewarded_distances,
    scoring_functions,
)
from truetune.source.parsed_source_file import Module


def _reward_functions(module: Module) -> Iterator[ast.AST]:
    """The reward functions of a file."""
    yield from scoring_functions(module)


class RewardGrowsWithTheDistance(SourceRule):
    code = "SRC525"
    fault = Fault.REWARD_PAID_FOR_WRONG_ANSWER
    symptoms = ("nothing-is-learned",)
    severity = "error"
    looks_at = CodePlaces("functions that give rewards", _reward_functions)

    def findings(self) -> Iterator[Finding]:
        """Findings on reward functions that pay for a distance."""
        for rewarded_distance in rewarded_distances(self.subject):
            yield self.finding(
                f"{rewarded_distance.function.name} gives more reward for a larger distance: training maximises the"
                " distance",
                "return -distance, or 1 / (1 + distance)",
                cases=[case_of_node(self.subject, rewarded_distance.distance)],
            )
