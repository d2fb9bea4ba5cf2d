"""The weights of the reward functions are not as many as the functions, or are all 0.

## What it does
For trainings by rewards of TRL and ms-swift, compares the length of `reward_weights` with that of `reward_funcs`, in
settings and in scripts. It also fires if all weights are 0. A single weight of 0 is fine: that function is then only
logged.

## Why it is bad
The trainer stops at another number of weights, after the model was loaded. With weights of 0 alone every answer has the
same reward, so nothing is learned.

## Example
```yaml
config:
  model_name_or_path: some/model
  dataset_name: some/rows
  num_generations: 8
  max_completion_length: 512
  reward_funcs: [accuracy_reward, think_format_reward]
  reward_weights: [1.0]
```

## Use instead
```yaml
config:
  model_name_or_path: some/model
  dataset_name: some/rows
  num_generations: 8
  max_completion_length: 512
  reward_funcs: [accuracy_reward, think_format_reward]
  reward_weights: [1.0, 0.2]
```

## Fix safety
The order of the weights is that of the functions. Without `reward_weights` each function has a weight of 1.

## References
- huggingface/trl#2843 (weights and functions differ in number), huggingface/open-r1#213 (what weights are for)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from truetune.checks.config.evidence.setting_places_and_known_keys import (
    is_config_of_python_program,
)
from truetune.checks.config.evidence.settings_of_reward_training import (
    case_of_setting,
    reward_training_setting,
)
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.hyperparameter_limits import parse_setting_number
from truetune.checks.rule import ConfigRule
from truetune.checks.source.evidence.reward_functions_rejecting_all_references import TRAINERS
from truetune.settings.config import Config
from truetune.source.parsed_source_file import read_module


class RewardWeightsDoNotMatchFunctions(ConfigRule):
    code = "CFG202"
    fault = Fault.SETTINGS_CONTRADICT
    symptoms = ("reward-does-not-rise", "nothing-is-learned")
    severity = "error"
    methods = ("grpo",)
    stacks = ("trl", "ms-swift")
    about = ("reward_weights",)

    def findings(self) -> Iterator[Finding]:
        """Findings on weights of another number, and on weights of 0."""
        if self.unmet() is not None:
            return
        config = self.subject
        weights = reward_training_setting(config, "reward weights")
        functions = reward_training_setting(config, "reward functions")
        numbers = _as_list(weights.value)
        if numbers and all(parse_setting_number(one) == 0 for one in numbers):
            yield self.finding(
                f"every one of the {len(numbers)} reward weights is 0: all answers have the same reward, and nothing is"
                " learned",
                "set reward_weights to 1.0 for the functions that the model has to learn from",
                cases=[case_of_setting(config, weights)],
            )
        names = _as_list(functions.value) or _functions_given_in_script(config)
        if not names:
            return
        # ms-swift counts the reward models after the functions too.
        models = _as_list(config.raw.get("reward_model"))
        if numbers and len(numbers) != len(names) + len(models):
            yield self.finding(
                f"the number of reward weights is {len(numbers)}, and that of the reward functions"
                f" {len(names) + len(models)}: the trainer stops",
                "give reward_weights one number for each function, in the order of reward_funcs",
                cases=[
                    case_of_setting(config, weights),
                    *([case_of_setting(config, functions)] if functions.is_written else ()),
                ],
            )


def _functions_given_in_script(config: Config) -> list[object]:
    """The reward functions that the only trainer of a script gets in a list; none where that is not known."""
    path = Path(config.path)
    if not is_config_of_python_program(config) or path.suffix != ".py" or not path.is_file():
        return []
    given = [call.argument(1, "reward_funcs") for call in read_module(path).calls(*TRAINERS)]
    if len(given) != 1 or not isinstance(given[0], ast.List | ast.Tuple):
        return []
    items = given[0].elts
    return [] if any(isinstance(one, ast.Starred) for one in items) else list(items)


def _as_list(value: object) -> list[object]:
    """The items of a list; a single value as the only item; nothing for None."""
    if value is None:
        return []
    return list(value) if isinstance(value, list | tuple) else [value]
