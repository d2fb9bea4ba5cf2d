r"""A pattern can't match the format that the prompt asks for: its `.` does not match newlines.

## What it does
Tries each pattern that a script searches with on the multi-line texts in the same script, such as the system prompt. It
fires if the pattern finds its tags or fences there only when `.` may match a newline (`re.DOTALL`). It does not report
patterns that match one of the texts as they are, or that have no fixed text at both ends.

## Why it is bad
An answer in exactly the requested format is not found. As a reward, the pattern gives 0 to every completion: all
advantages are 0, and nothing is learned. As a metric, it counts right answers as wrong.

## Example
```python
import re

from datasets import load_dataset
from trl import GRPOTrainer

SYSTEM = "Answer in this form:\n<think>\n...\n</think>\n<answer>\n...\n</answer>"
FORM = re.compile(r"^<think>.*?</think>\s*<answer>.*?</answer>$")


def has_form(completions, **kwargs):
    return [1.0 if FORM.match(text) else 0.0 for text in completions]


rows = load_dataset("openai/gsm8k", "main", split="train").map(lambda row: {"prompt": SYSTEM + row["question"]})
GRPOTrainer(model="model", reward_funcs=has_form, train_dataset=rows).train()
```

## Use instead
```python
import re

from datasets import load_dataset
from trl import GRPOTrainer

SYSTEM = "Answer in this form:\n<think>\n...\n</think>\n<answer>\n...\n</answer>"
FORM = re.compile(r"^<think>.*?</think>\s*<answer>.*?</answer>$", re.DOTALL)


def has_form(completions, **kwargs):
    return [1.0 if FORM.match(text) else 0.0 for text in completions]


rows = load_dataset("openai/gsm8k", "main", split="train").map(lambda row: {"prompt": SYSTEM + row["question"]})
GRPOTrainer(model="model", reward_funcs=has_form, train_dataset=rows).train()
```

## Fix safety
There is no automatic fix: with `re.DOTALL` a greedy `.*` can match across several answers, so check that the pattern
uses `.*?`. Rewards and scores change.

## References
- Python documentation, "re": `re.DOTALL`
- huggingface/open-r1#239
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.patterns_stopping_at_line_end import (
    patterns_stopping_at_first_line,
    regex_search_calls,
)
from truetune.checks.source.evidence.reward_functions_rejecting_all_references import TRAINERS


class PatternStopsAtLineEnd(SourceRule):
    code = "SRC261"
    fault = Fault.RIGHT_ANSWERS_COUNTED_WRONG
    symptoms = ("loss-does-not-fall", "nothing-is-learned", "odd-metrics")
    severity = "warning"
    looks_at = CodePlaces("searches by a pattern", regex_search_calls)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        is_reward = any(True for _ in module.calls(*TRAINERS))
        for stopped in patterns_stopping_at_first_line(module):
            effect = "gets no reward from it" if is_reward else "counts as wrong"
            yield self.finding(
                f"the pattern `{stopped.pattern}` never matches the format that the text in line"
                f" {stopped.form.lineno} asks for: `.` does not match newlines, and the format"
                f" has {stopped.lines} lines, so an answer in that format {effect}",
                "pass re.DOTALL to the pattern, then test it on an answer in that format before the run",
                cases=[case_of_node(module, stopped.search), case_of_node(module, stopped.form)],
            )
