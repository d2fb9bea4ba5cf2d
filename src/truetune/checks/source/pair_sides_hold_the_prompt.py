"""Chosen and rejected contain the whole conversation, and the pair has a prompt column as well.

## What it does
Traces the two sides of a pair that a script or a notebook makes to the chat that a template renders, or to the texts
that are joined. It fires if both begin with the question and the pair also has a `prompt`.

## Why it is bad
The trainer puts the prompt before each side. The question is then in the text twice, and the second copy is scored and
trained on as part of the answer. Rewards look normal, but the model learns to repeat the question, in a format that no
server sends.

## Example
```python
from datasets import load_dataset
from transformers import AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("Qwen/Qwen2.5-7B-Instruct")


def render(row):
    user = {"role": "user", "content": row["question"]}
    good, bad = {"role": "assistant", "content": row["good"]}, {"role": "assistant", "content": row["bad"]}
    return {
        "prompt": row["question"],
        "chosen": tokenizer.apply_chat_template([user, good], tokenize=False),
        "rejected": tokenizer.apply_chat_template([user, bad], tokenize=False),
    }


pairs = load_dataset("json", data_files="pairs.jsonl", split="train").map(render)
```

## Use instead
```python
from datasets import load_dataset


def shape(row):
    return {
        "prompt": [{"role": "user", "content": row["question"]}],
        "chosen": [{"role": "assistant", "content": row["good"]}],
        "rejected": [{"role": "assistant", "content": row["bad"]}],
    }


pairs = load_dataset("json", data_files="pairs.jsonl", split="train").map(shape)
```

## Fix safety
There is no automatic fix: remove either the prompt column or the question in both sides. A model that was trained on
the old pairs must be trained again.

## References
- huggingface/trl#2209, huggingface/trl#2551
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.prompts_inside_pair_sides import prompts_inside_pairs
from truetune.source.parsed_source_file import Module

SIDES = frozenset(("prompt", "chosen", "rejected"))


def _mappings_with_prompt_and_two_sides(module: Module) -> Iterator[ast.AST]:
    """Mappings with a prompt and two sides."""
    for node in module.nodes(ast.Dict):
        keys = {key.value for key in node.keys if isinstance(key, ast.Constant)}
        if keys >= SIDES:
            yield node


class PairSidesHoldThePrompt(SourceRule):
    code = "SRC186"
    fault = Fault.PAIR_PROMPTS_WRONG
    symptoms = ("dpo-without-effect",)
    severity = "error"
    looks_at = CodePlaces(
        "pairs with a prompt, chosen and rejected", _mappings_with_prompt_and_two_sides
    )

    def findings(self) -> Iterator[Finding]:
        for prompt_inside_pair in prompts_inside_pairs(self.subject):
            how = (
                "rendered with the whole conversation"
                if prompt_inside_pair.is_rendered
                else "joined with the prompt"
            )
            yield self.finding(
                f"chosen and rejected are {how}, and the pair has a prompt column too: the text contains the prompt"
                " twice, and the second copy is trained on as part of the answer",
                "write each of the three as a list of only its own messages (prompt: the user's, chosen and rejected:"
                " the assistant's), or remove the prompt from the pair",
                cases=[case_of_node(self.subject, prompt_inside_pair.node)],
            )
