"""Answers are generated one row at a time in a loop.

## What it does
Looks for `model.generate` inside a loop over rows where the tokenizer is called on one text at a time.

## Why it is bad
A GPU answers 32 prompts in nearly the time of one: an evaluation that takes minutes takes hours.

## Example
```python
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("model")
model = AutoModelForCausalLM.from_pretrained("model")
for prompt in ["Hi", "How do you do?"]:
    inputs = tokenizer(prompt, return_tensors="pt")
    print(model.generate(**inputs, max_new_tokens=20))
```

## Use instead
```python
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("model", padding_side="left")
model = AutoModelForCausalLM.from_pretrained("model")
inputs = tokenizer(["Hi", "How do you do?"], padding=True, return_tensors="pt")
print(model.generate(**inputs, max_new_tokens=20))
```

## Fix safety
Batches need left padding and the attention mask; sorted by length they waste least.

## References
- turbo-llm/turbo-alignment#47, huggingface/transformers#28056
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.generation import GENERATIONS, generations
from truetune.checks.source.places import at
from truetune.source.module import Module


class GenerationRowByRow(SourceRule):
    code = "TT738"
    severity = "info"
    looks_at = GENERATIONS

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        for call in generations(module):
            loop = next(
                (node for node in module.parents(call.node) if isinstance(node, ast.For)), None
            )
            if loop is not None and _one_text(module, loop):
                yield self.finding(
                    "generate runs on one row at a time, in a loop",
                    "tokenize a list of prompts with padding on the left, and generate in batches",
                    cases=[at(module, call.node)],
                )


def _one_text(module: Module, loop: ast.For) -> bool:
    """Is a tokenizer called in the loop on the loop's own variable, without padding?"""
    if not isinstance(loop.target, ast.Name):
        return False
    inside = {node for node in ast.walk(loop) if isinstance(node, ast.Call)}
    return any(
        (text := call.argument(0, "text")) is not None
        and ast.unparse(text) in (loop.target.id, f"[{loop.target.id}]")
        and "padding" not in call.keywords
        and "encoding" in module.flow.kinds(call.node)
        for call in module.all_calls
        if call.node in inside
    )
