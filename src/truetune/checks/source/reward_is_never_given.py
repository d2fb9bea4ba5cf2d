r"""A reward function rejects every row's own reference: no answer can ever be right.

## What it does
Follows a script with its rows in hand up to its GRPO or RLOO trainer, and calls each reward function of it with answers
that end in the row's own result: `42`, `#### 42`, `\boxed{42}`, `<answer>42</answer>`, and in tags that
are in the script. It fires where the function takes the result out of an answer, compares it with something that it
never equals, and rewards no answer of any row. Rows are those of files beside the script; of `openai/gsm8k`, rows in
its form.

## Why it is bad
All answers have the reward 0, every advantage is 0, and nothing is learned. The loss is 0 in healthy runs too, so that
nothing in the log tells a hard task from a function that can't say yes.

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
There is no automatic fix: take the result out of the reference as out of the answer, and compare both as one type.

## References
- huggingface/trl#2703
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.examined_code_places import places_of_calls
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.reward_functions_rejecting_all_references import (
    TRAINERS,
    reward_functions_rejecting_own_references,
)


class RewardIsNeverGiven(SourceRule):
    code = "SRC160"
    symptoms = ("loss-does-not-fall", "nothing-is-learned")
    severity = "error"
    looks_at = places_of_calls("trainers that are given reward functions", *TRAINERS)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        if not any(module.calls(*TRAINERS)):
            return
        for found in reward_functions_rejecting_own_references(module):
            home = found.function.home
            cases = [case_of_node(home, found.function.definition)]
            if found.node in home.scopes.parent:
                cases.insert(0, case_of_node(home, found.node))
            yield self.finding(
                f"{found.function.name} compares {found.taken_out} with {found.compared_with}, which it never equals:"
                f" the own results of all {found.rows} rows that were tried get no reward",
                "take the result out of the reference as out of the answer (split('####')[-1].strip()), see that the"
                " column arrives, and compare both as one type; then call the function on the references before the"
                " run",
                cases=cases,
            )
