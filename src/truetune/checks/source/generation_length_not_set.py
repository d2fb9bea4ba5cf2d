"""Generation runs with the default length of 20 tokens.

## What it does
Looks for `model.generate(...)` without `max_new_tokens`, `max_length`, `max_time`, a stopping criterion or a generation
config, in a file that sets no length elsewhere. In a notebook, only inside functions and loops: what a cell generates
by itself is read at once.

## Why it is bad
transformers stops after 20 tokens in all, prompt and answer: answers are cut, and an evaluation on them measures
nothing.

## Example
```python
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("model")
model = AutoModelForCausalLM.from_pretrained("model")
out = model.generate(**tokenizer("Tell me a story", return_tensors="pt"))
```

## Use instead
```python
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("model")
model = AutoModelForCausalLM.from_pretrained("model")
out = model.generate(**tokenizer("Tell me a story", return_tensors="pt"), max_new_tokens=512)
```

## Fix safety
Not mechanical: how long answers may be is the writer's choice. Where the checkpoint's own generation_config.json sets a
length, nothing is cut.

## References
- huggingface/transformers: `GenerationConfig.max_length` (default 20)
- huggingface/transformers#28056
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.generation import generations, is_causal, lacks
from truetune.checks.source.places import at

AGAIN = (
    ast.FunctionDef,
    ast.AsyncFunctionDef,
    ast.Lambda,
    ast.For,
    ast.While,
    ast.ListComp,
    ast.GeneratorExp,
    ast.DictComp,
)
"""Code that runs more than once, or elsewhere than it stands"""
LENGTHS = ("max_new_tokens", "max_length", "max_time", "stopping_criteria", "generation_config")


class GenerationLengthNotSet(SourceRule):
    code = "TT736"
    severity = "warning"

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        calls = [call for call in generations(module) if all(lacks(module, call, name) for name in LENGTHS)]
        if not calls or any(f"generation_config.{name}" in module.text for name in LENGTHS):
            return
        for call in calls:
            if module.cells and not any(isinstance(around, AGAIN) for around in module.parents(call.node)):
                continue
            causal = call.receiver is not None and is_causal(module, call.receiver)
            yield self.finding(
                "generate is given no length: it stops after 20 tokens, unless the checkpoint's own config says more",
                "give max_new_tokens",
                severity="warning" if causal else "info",
                cases=[at(module, call.node)],
            )
