"""GRPO compares two completions per prompt with a two-valued reward, so half of the groups or more give no gradient.

## What it does
Looks at GRPO settings with `num_generations: 2` and at the reward functions that they name or that the script defines.
It fires if each function returns only two values (1 for the right answer, else 0).

## Why it is bad
A group only gives a gradient if its rewards differ. With two completions and a chance p of a reward of 1, that is 2p(1
- p) of the groups: half of them at best, and 18 % at p = 0.1. The rest of the generation time is wasted. With 8
completions it is 57 % at p = 0.1.

## Example
```yaml
files:
  rewards.py: |
    def exact(completions, answer, **kwargs):
        return [1.0 if text == gold else 0.0 for text, gold in zip(completions, answer)]
config:
  model_name_or_path: some/model
  dataset_name: some/rows
  reward_funcs: [rewards.exact]
  num_generations: 2
  max_completion_length: 512
```

## Use instead
```yaml
files:
  rewards.py: |
    def exact(completions, answer, **kwargs):
        return [1.0 if text == gold else 0.0 for text, gold in zip(completions, answer)]
config:
  model_name_or_path: some/model
  dataset_name: some/rows
  reward_funcs: [rewards.exact]
  num_generations: 8
  max_completion_length: 512
```

## Fix safety
More completions per prompt make each step slower, or leave room for fewer prompts. The batch size has to be a multiple
of `num_generations`.

## References
- jsboige/CoursIA#10603
- huggingface/trl#6367
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from truetune.checks.config.evidence.setting_places_and_known_keys import setting_case
from truetune.checks.config.evidence.two_valued_reward_functions import (
    two_valued_functions_of_script,
    two_valued_functions_of_settings,
)
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import ConfigRule

GROUP_KEY, REWARDS_KEY = "num_generations", "reward_funcs"


class GroupTooSmallForItsReward(ConfigRule):
    code = "CFG190"
    fault = Fault.COMPLETIONS_GET_EQUAL_REWARDS
    severity = "warning"
    symptoms = ("reward-does-not-rise",)
    stacks = ("trl",)
    about = (GROUP_KEY,)

    def findings(self) -> Iterator[Finding]:
        """Findings on groups of two under rewards of two values."""
        config = self.subject
        if config.raw.get(GROUP_KEY) != 2:
            return
        names = _two_valued_functions(Path(config.path), config.raw.get(REWARDS_KEY))
        if names is None:
            return
        yield self.finding(
            f"only two completions per prompt are compared, with a reward of two values ({', '.join(names)}): in at"
            " least half of the groups both get the same reward, and the group gives no gradient",
            f"set {GROUP_KEY} to 8, and the batch size to a multiple of 8",
            cases=[setting_case(config, 2, GROUP_KEY)],
        )


def _two_valued_functions(path: Path, named: object) -> list[str] | None:
    """The reward functions of a run, where all of them give two values; None otherwise."""
    if path.suffix == ".py":
        return two_valued_functions_of_script(path)
    return None if named is None else two_valued_functions_of_settings(named, path.parent)
