"""A reward function can't distinguish completions: it ignores them, gives all one reward, or never gets its reference.

## What it does
Looks at the functions that score completions for GRPO and RLOO: those with a parameter `completions` that a trainer
gets, or that take `**kwargs`. It fires if such a function never reads the text of a completion, if each of its returns
is a single reward for all of them, and if its reference has a default value and a name that no column of the rows has.
Where prompts are messages, a completion is a list of one message: its length is no reading of the text.

## Why it is bad
GRPO subtracts the mean of the group from each reward. A reward that is the same for all completions of a prompt becomes
0, and nothing is learned; the mean reward in the log looks like a success. A reference that never arrives makes every
answer wrong. Older releases of TRL applied a list with one reward to all completions silently; 1.16 raises an error.

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
There is no automatic fix: you decide what is rewarded. Rewards change, so the run must be repeated.

## References
- huggingface/trl#6533 (one reward for all), huggingface/trl#3452
- https://huggingface.co/docs/trl/grpo_trainer#using-a-custom-reward-function
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.completions_measured_as_lists import (
    rewards_that_measure_message_lists,
)
from truetune.checks.source.evidence.rewards_without_difference import (
    defaulted_parameters_without_row_column,
    reward_functions_of_file,
    reward_functions_returning_one_reward,
    rewards_without_completions,
)


class RewardTellsNothingApart(SourceRule):
    code = "SRC462"
    fault = Fault.COMPLETIONS_GET_EQUAL_REWARDS
    symptoms = ("reward-does-not-rise", "loss-does-not-fall", "nothing-is-learned")
    severity = "error"
    looks_at = CodePlaces("functions that score completions", reward_functions_of_file)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        for blind in rewards_without_completions(module):
            yield self.finding(
                f"{blind.function.name} never reads the completions: all completions of a prompt get the same reward,"
                " so GRPO learns nothing",
                "compute each reward from the text of its completion",
                cases=[case_of_node(module, blind.function), case_of_node(module, blind.place)],
            )
        for measured in rewards_that_measure_message_lists(module):
            yield self.finding(
                f"{measured.function.name} measures a list and no text: the prompts are messages, so each completion is"
                " a list with one message, and all get the same reward",
                'use the text of the message: completion[0]["content"]',
                cases=[
                    case_of_node(module, measured.place),
                    case_of_node(module, measured.function),
                ],
            )
        for single in reward_functions_returning_one_reward(module):
            yield self.finding(
                f"{single.function.name} returns one reward for all completions: GRPO compares the reward with itself,"
                " and learns nothing",
                "return a list with one reward per completion, in their order",
                cases=[case_of_node(module, single.place), case_of_node(module, single.function)],
            )
        for missing in defaulted_parameters_without_row_column(module):
            home, name = missing.function.home, missing.parameter.arg
            columns = ", ".join(missing.columns) or "none except the prompt"
            yield self.finding(
                f"{missing.function.name} never gets {name}: TRL passes columns by name, and no column is called so;"
                " the default is used for every row",
                f"rename the parameter to the column with the reference (columns: {columns}), and remove its default",
                cases=[
                    case_of_node(home, missing.parameter),
                    case_of_node(home, missing.function.definition),
                ],
            )
