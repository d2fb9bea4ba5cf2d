"""Chosen and rejected hold the whole conversation, and a column holds the prompt as well.

## What it does
Follows the two sides of a pair that a script or a notebook makes to the chat that a template renders, or to the texts
that are joined. It speaks where both begin with the question, and the pair has a `prompt` too.

## Why it is bad
The trainer writes the prompt in front of each side: the question is then there twice, and the second one is
scored and learned as part of the answer. Rewards look as they should; the model learns to repeat the question, in the
form that no server sends.

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
There is no automatic fix: either the prompt column goes, or the question in both sides.

## References
- huggingface/trl#2209, huggingface/trl#2551
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
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
    symptoms = ("dpo-without-effect",)
    severity = "error"
    looks_at = CodePlaces(
        "pairs with a prompt, chosen and rejected", _mappings_with_prompt_and_two_sides
    )

    def findings(self) -> Iterator[Finding]:
        for found in prompts_inside_pairs(self.subject):
            how = "rendered with the whole conversation" if found.is_rendered else "joined with it"
            yield self.finding(
                f"chosen and rejected are {how}, and the pair has a prompt too: the prompt is there twice, and the"
                " second one is learned as part of the answer",
                "give the three as lists of messages, each with its own turns alone (prompt: user, chosen and rejected:"
                " assistant), or leave the prompt out of the pair",
                cases=[case_of_node(self.subject, found.node)],
            )
