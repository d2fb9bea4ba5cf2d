r"""A reward function rejects every row's own reference: no answer can ever be right.

## What it does
Runs a script with its rows up to its GRPO or RLOO trainer, and calls each of its reward functions with answers that end
in the row's own result: `42`, `#### 42`, `\boxed{42}`, `<answer>42</answer>`, and in tags that are in the script. It
fires if the function extracts the result from an answer, compares it with something that it never equals, and gives no
answer of any row a reward. The rows come from files next to the script; for `openai/gsm8k`, rows in its format are
used.

## Why it is bad
All answers get the reward 0, every advantage is 0, and nothing is learned. The loss is 0 in healthy runs too, so
nothing in the log distinguishes a hard task from a function that never gives a reward.

## Example
```python
import re

from datasets import load_dataset
from trl import GRPOTrainer

rows = load_dataset("openai/gsm8k", "main", split="train").map(lambda row: {"prompt": row["question"]})


def right(completions, answer, **kwargs):
    found = [re.search(r"<answer>(.*?)</answer>", text) for text in completions]
    return [1.0 if one and one.group(1) == gold else 0.0 for one, gold in zip(found, answer)]


GRPOTrainer(model="model", reward_funcs=right, train_dataset=rows).train()
```

## Use instead
```python
import re

from datasets import load_dataset
from trl import GRPOTrainer

rows = load_dataset("openai/gsm8k", "main", split="train").map(lambda row: {"prompt": row["question"]})


def right(completions, answer, **kwargs):
    found = [re.search(r"<answer>(.*?)</answer>", text) for text in completions]
    golds = [gold.split("####")[-1].strip() for gold in answer]
    return [1.0 if one and one.group(1) == gold else 0.0 for one, gold in zip(found, golds)]


GRPOTrainer(model="model", reward_funcs=right, train_dataset=rows).train()
```

## Fix safety
There is no automatic fix: extract the result from the reference as you do from the answer, and compare both as the same
type.

## References
- huggingface/trl#2703
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.examined_code_places import places_of_calls
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.reward_functions_rejecting_all_references import (
    TRAINERS,
    reward_functions_rejecting_own_references,
)


class RewardIsNeverGiven(SourceRule):
    code = "SRC160"
    fault = Fault.RIGHT_ANSWERS_GET_NO_REWARD
    symptoms = ("reward-does-not-rise", "loss-does-not-fall", "nothing-is-learned")
    severity = "error"
    looks_at = places_of_calls("trainers that are given reward functions", *TRAINERS)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        if not any(module.calls(*TRAINERS)):
            return
        for reward_never_given in reward_functions_rejecting_own_references(module):
            home = reward_never_given.function.home
            cases = [case_of_node(home, reward_never_given.function.definition)]
            if reward_never_given.node in home.scopes.parent:
                cases.insert(0, case_of_node(home, reward_never_given.node))
            yield self.finding(
                f"{reward_never_given.function.name} compares {reward_never_given.taken_out} with"
                f" {reward_never_given.compared_with}, which it never equals:"
                f" even the correct results of all {reward_never_given.rows} tried rows get no reward",
                "extract the result from the reference as from the answer (split('####')[-1].strip()), and compare"
                " both as the same type; then call the function on the references before the run: each must get the"
                " full reward",
                cases=cases,
            )
