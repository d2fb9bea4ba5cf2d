"""A reward function looks for the answer inside of the reference, where an empty answer is always found.

## What it does
Looks at reward functions of TRL and at verl's `compute_score` for tests of the form `answer in reference`, in which
both are texts and the answer comes from the completion; also `reference in answer or answer in reference`, and
`reference.startswith(answer)`. It does not fire if the function also tests whether the answer is empty.

## Why it is bad
The empty text is part of every text, so an empty answer gets the whole reward. The policy finds that within some
hundred steps: a report ends with nothing but `<answer></answer>`, while the reward is at its maximum. A single letter
is nearly always found, too.

## Example
```python
import re
from trl import GRPOTrainer

def accuracy(completions, solution, **kwargs):
    rewards = []
    for completion, truth in zip(completions, solution):
        answer = re.search(r"<answer>(.*?)</answer>", completion).group(1).strip().lower()
        if truth.lower() in answer or answer in truth.lower():
            rewards.append(1.0)
        else:
            rewards.append(0.0)
    return rewards

trainer = GRPOTrainer(model="model", reward_funcs=accuracy, train_dataset=rows)
trainer.train()
```

## Use instead
```python
import re
from trl import GRPOTrainer

def accuracy(completions, solution, **kwargs):
    rewards = []
    for completion, truth in zip(completions, solution):
        answer = re.search(r"<answer>(.*?)</answer>", completion).group(1).strip().lower()
        if truth.lower() == answer:
            rewards.append(1.0)
        else:
            rewards.append(0.0)
    return rewards

trainer = GRPOTrainer(model="model", reward_funcs=accuracy, train_dataset=rows)
trainer.train()
```

## Fix safety
Equality is stricter: rewards fall at first. If several spellings are right, compare with a list of them
(`answer in [one.lower() for one in spellings]`), in which the empty text is not.

## References
- Liuziyu77/Visual-RFT#176 (all answers end up empty), Liuziyu77/Visual-RFT#79, PrimeIntellect-ai/verifiers#763
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.rewards_that_grow_with_a_distance import scoring_functions
from truetune.checks.source.evidence.searches_of_answers_in_references import (
    searches_that_hold_for_empty_answers,
)
from truetune.source.parsed_source_file import Module


def _reward_functions(module: Module) -> Iterator[ast.AST]:
    """The functions of a file that give rewards."""
    yield from scoring_functions(module)


class RewardPaysTheEmptyAnswer(SourceRule):
    code = "SRC540"
    fault = Fault.REWARD_PAID_WITHOUT_ANSWER
    symptoms = ("nothing-is-learned",)
    severity = "warning"
    looks_at = CodePlaces("functions that give rewards", _reward_functions)

    def findings(self) -> Iterator[Finding]:
        """Findings on answers that are looked for inside of the reference."""
        for function in scoring_functions(self.subject):
            for node in searches_that_hold_for_empty_answers(function):
                yield self.finding(
                    f"{function.name} looks for the answer inside of the reference ({ast.unparse(node)}): an empty"
                    " answer is always found, and gets the reward",
                    "compare for equality, or with a list of right spellings; give an empty answer 0",
                    cases=[case_of_node(self.subject, node)],
                )
