r"""A reward function rewards an answer format that the prompts don't ask for, and not the one that they ask for.

## What it does
Runs a script with its rows up to its GRPO or RLOO trainer, and reads in the prompts which answer format they ask for:
`\boxed{}`, `####`, or a tag such as `<answer>`. It calls each reward function with each row's own result in these
formats. It fires if the format that all prompts ask for gets no reward, and another one, which no prompt names, gets
one. It does not judge prompts that name several formats, and rows without a short result.

## Why it is bad
A model that follows its prompt gets the reward 0. All advantages are 0, so the loss stays at 0 and nothing is learned.
Or the model finds the rewarded format by chance, and learns to disregard its prompt.

## Example
```python
import re

from datasets import load_dataset
from trl import GRPOTrainer

ASK = "Put the final answer in \\boxed{}. "
rows = load_dataset("openai/gsm8k", "main", split="train").map(lambda row: {"prompt": ASK + row["question"]})


def right(completions, answer, **kwargs):
    found = [re.search(r"<answer>(.*?)</answer>", text, re.DOTALL) for text in completions]
    golds = [gold.split("####")[-1].strip() for gold in answer]
    return [1.0 if one and one.group(1).strip() == gold else 0.0 for one, gold in zip(found, golds)]


GRPOTrainer(model="model", reward_funcs=right, train_dataset=rows).train()
```

## Use instead
```python
import re

from datasets import load_dataset
from trl import GRPOTrainer

ASK = "Put the final answer in <answer></answer>. "
rows = load_dataset("openai/gsm8k", "main", split="train").map(lambda row: {"prompt": ASK + row["question"]})


def right(completions, answer, **kwargs):
    found = [re.search(r"<answer>(.*?)</answer>", text, re.DOTALL) for text in completions]
    golds = [gold.split("####")[-1].strip() for gold in answer]
    return [1.0 if one and one.group(1).strip() == gold else 0.0 for one, gold in zip(found, golds)]


GRPOTrainer(model="model", reward_funcs=right, train_dataset=rows).train()
```

## Fix safety
There is no automatic fix: change either the prompts or the function. If you change the prompts, use the same ones at
inference.

## References
- TRL documentation, "GRPO Trainer", custom reward functions
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
    rewards_only_for_unasked_answer_formats,
)

SHOWN_CHARS = 160
"""Of a prompt, around the form that it asks for. Chosen, not measured: two lines of a terminal"""


class RewardReadsAnotherForm(SourceRule):
    code = "SRC290"
    fault = Fault.RIGHT_ANSWERS_GET_NO_REWARD
    symptoms = (
        "reward-does-not-rise",
        "reward-rises-model-is-worse",
        "loss-does-not-fall",
        "nothing-is-learned",
    )
    severity = "error"
    looks_at = places_of_calls("trainers that are given reward functions", *TRAINERS)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        if not any(module.calls(*TRAINERS)):
            return
        for paid_form in rewards_only_for_unasked_answer_formats(module):
            asked, paid = (
                _answer_form_in_full(paid_form.asked),
                _answer_form_in_full(paid_form.paid),
            )
            place = paid_form.prompt.find(paid_form.asked)
            around = paid_form.prompt[max(0, place - SHOWN_CHARS // 2) : place + SHOWN_CHARS // 2]
            yield self.finding(
                f"the prompts ask for the answer in {asked}, but {paid_form.function.name} only rewards {paid}: the"
                f" correct results of all {paid_form.rows} tried rows, in {asked}, get no reward",
                f"change {paid_form.function.name} to read {asked}, or let the prompts ask for {paid}; then call the"
                " function on an answer in that format before the run",
                evidence=[f"a prompt: {around!r}"],
                cases=[case_of_node(paid_form.function.home, paid_form.function.definition)],
            )


def _answer_form_in_full(mark: str) -> str:
    """A form in full, by the mark that opens it: `<answer>...</answer>` of `<answer>`."""
    if mark.startswith("<"):
        return f"{mark}...</{mark[1:]}"
    return f"{mark}}}" if mark.endswith("{") else f"{mark} ..."
