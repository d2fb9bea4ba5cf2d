"""A reward function pays for a distance: the further a completion is from what is wanted, the higher its reward.

## What it does
Writes what a reward function of GRPO, or `compute_score` of verl, gives for each completion as a sum of terms with
signs, and looks for distances: `abs(a - b)`, `(a - b) ** 2`, an edit distance, an error rate. It fires where the
reward grows with all of them. `-distance`, `1 - distance`, `1 / (1 + distance)` and `exp(-distance)` fall with it.
Functions whose name says that a distance is wanted or punished, and trainers with `reward_weights`, are left alone.

## Why it is bad
GRPO makes the reward large. The mean reward rises as it should, and the model learns to be as far from the target
as it can: the longest answers, or the least similar ones.

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
There is no automatic fix. The training has to be repeated from where it started.

## References
- huggingface/trl#2771
- NVlabs/alpamayo-recipes#29
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
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
    symptoms = ("nothing-is-learned",)
    severity = "error"
    looks_at = CodePlaces("functions that give rewards", _reward_functions)

    def findings(self) -> Iterator[Finding]:
        """Findings on reward functions that pay for a distance."""
        for found in rewarded_distances(self.subject):
            yield self.finding(
                f"{found.function.name} gives more the larger a distance is: the training makes the distance large",
                "give the distance a minus, or 1 / (1 + distance)",
                cases=[case_of_node(self.subject, found.distance)],
            )
