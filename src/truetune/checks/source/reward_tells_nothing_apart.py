"""A reward function tells no completions apart: it reads none, gives one reward to all, or never gets its reference.

## What it does
Looks at the functions that score completions for GRPO and RLOO: those with a parameter `completions` that a trainer is
given, or that take `**kwargs`. It speaks where such a function never reads what a completion holds, where each of its
returns is one reward for all of them, and where its reference has a default and a name that no column of the rows has.

## Why it is bad
GRPO takes from each reward the mean of its group. A reward that is the same for all completions of a prompt is 0 after
that, and teaches nothing; the mean in the log looks like a success. A reference that never arrives makes every answer
wrong. Older releases of TRL spread a list of one reward over all completions without a word; 1.16 stops.

## Example
```python
from trl import GRPOConfig, GRPOTrainer

def brevity(prompts, completions, **kwargs):
    return [1 / (1 + len(prompt.split())) for prompt in prompts]

trainer = GRPOTrainer("model", reward_funcs=[brevity], args=GRPOConfig("out"), train_dataset=rows)
trainer.train()
```

## Use instead
```python
from trl import GRPOConfig, GRPOTrainer

def brevity(prompts, completions, **kwargs):
    return [1 / (1 + len(completion.split())) for completion in completions]

trainer = GRPOTrainer("model", reward_funcs=[brevity], args=GRPOConfig("out"), train_dataset=rows)
trainer.train()
```

## Fix safety
There is no automatic fix: what is to be rewarded is for the author to say.

## References
- huggingface/trl#6533 (one reward for all), huggingface/trl#3452
- https://huggingface.co/docs/trl/grpo_trainer#using-a-custom-reward-function
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.rewards_without_difference import (
    defaulted_parameters_without_row_column,
    reward_functions_of_file,
    reward_functions_returning_one_reward,
    rewards_without_completions,
)


class RewardTellsNothingApart(SourceRule):
    code = "SRC462"
    symptoms = ("loss-does-not-fall", "nothing-is-learned")
    severity = "error"
    looks_at = CodePlaces("functions that score completions", reward_functions_of_file)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        for blind in rewards_without_completions(module):
            yield self.finding(
                f"{blind.function.name} reads no completion: all completions of a prompt get the same reward, and GRPO"
                " learns nothing from it",
                "score what each completion says",
                cases=[case_of_node(module, blind.function), case_of_node(module, blind.place)],
            )
        for single in reward_functions_returning_one_reward(module):
            yield self.finding(
                f"{single.function.name} returns one reward for all completions: GRPO compares a reward with itself",
                "return a list with one reward for each completion, in their order",
                cases=[case_of_node(module, single.place), case_of_node(module, single.function)],
            )
        for missing in defaulted_parameters_without_row_column(module):
            home, name = missing.function.home, missing.parameter.arg
            columns = ", ".join(missing.columns) or "none beside the prompt"
            yield self.finding(
                f"{missing.function.name} is never given {name}: TRL passes columns by their names, and no column has"
                " this one",
                f"name the parameter like the column that holds it ({columns}), without a default",
                cases=[
                    case_of_node(home, missing.parameter),
                    case_of_node(home, missing.function.definition),
                ],
            )
