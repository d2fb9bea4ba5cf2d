r"""A pattern of a reward function needs a special token, but completions arrive without special tokens.

## What it does
Looks at the reward functions of TRL's GRPO and RLOO, and at the functions that they call. It fires if a pattern matches
only with the text of a stop or turn token in it (`<|im_end|>`, `<|eot_id|>`, `</s>`), or if a reward depends on a
completion that contains or ends in one. A token that is optional in the pattern, and patterns that clean a text, are
not reported.

## Why it is bad
TRL decodes completions with `skip_special_tokens=True`: the stop token is not in the text, however the model ends. The
pattern never matches, so all completions get the same reward from it, and a format is never learned. Another reward
function may hide that in the mean.

## Example
```python
import re

from trl import GRPOTrainer

FORM = re.compile(r"^<think>.*?</think>\s*<answer>.*?</answer><\|im_end\|>$", re.DOTALL)

def has_form(completions, **kwargs):
    return [1.0 if FORM.match(text) else 0.0 for text in completions]

GRPOTrainer(model="model", reward_funcs=has_form, train_dataset=rows).train()
```

## Use instead
```python
import re

from trl import GRPOTrainer

FORM = re.compile(r"^<think>.*?</think>\s*<answer>.*?</answer>$", re.DOTALL)

def has_form(completions, **kwargs):
    return [1.0 if FORM.match(text) else 0.0 for text in completions]

GRPOTrainer(model="model", reward_funcs=has_form, train_dataset=rows).train()
```

## Fix safety
There is no automatic fix. If the reward is for ending at all, test the last of `completion_ids`, which TRL passes to
functions with that argument.

## References
- lsdefine/simple_GRPO#19
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.patterns_with_special_tokens import (
    patterns_with_special_tokens,
)
from truetune.checks.source.evidence.rewards_without_difference import reward_functions_of_file


class RewardPatternNeedsASpecialToken(SourceRule):
    code = "SRC548"
    fault = Fault.RIGHT_ANSWERS_GET_NO_REWARD
    symptoms = ("reward-does-not-rise", "nothing-is-learned")
    severity = "error"
    looks_at = CodePlaces("functions that score completions", reward_functions_of_file)

    def findings(self) -> Iterator[Finding]:
        """Findings on patterns that no decoded completion matches."""
        for special_token_pattern in patterns_with_special_tokens(self.subject):
            yield self.finding(
                f"{special_token_pattern.function.name} pays only where a completion contains"
                f" {special_token_pattern.token}, but TRL decodes"
                " completions without special tokens: no completion ever gets this reward",
                f"remove {special_token_pattern.token} from the pattern; test the function on an answer in the"
                " wanted form before the run",
                cases=[
                    case_of_node(self.subject, special_token_pattern.search),
                    case_of_node(self.subject, special_token_pattern.function),
                ],
            )
