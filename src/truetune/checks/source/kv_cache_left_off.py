"""Generation runs without the key-value cache.

## What it does
Looks for `generate(use_cache=False)`, and for `generation_config.use_cache = False` in a file that generates later. A
call with a `streamer` shows one answer as it comes, to somebody who sees how fast it is: it is left alone.

## Why it is bad
Each new token then runs the whole text again: time grows with the square of the length, and an evaluation takes hours.

## Example
```python
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("model")
model = AutoModelForCausalLM.from_pretrained("model")
out = model.generate(**tokenizer("Hi", return_tensors="pt"), max_new_tokens=512, use_cache=False)
```

## Use instead
```python
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("model")
model = AutoModelForCausalLM.from_pretrained("model")
out = model.generate(**tokenizer("Hi", return_tensors="pt"), max_new_tokens=512, use_cache=True)
```

## Fix safety
Safe for models that keep a cache; the text stays the same up to rounding.

## References
- turbo-llm/turbo-alignment#47, huggingface/transformers#28056
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.generation import generations
from truetune.checks.source.places import at, fix
from truetune.source.edits import replace


class KvCacheLeftOff(SourceRule):
    code = "TT739"
    severity = "warning"

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        calls = list(generations(module))
        off = [
            value
            for call in calls
            if (value := call.keywords.get("use_cache")) is not None and "streamer" not in call.keywords
        ]
        if calls:
            off += [node.value for node in module.nodes(ast.Assign) if _switch(node.targets[0])]
        for value in off:
            if module.flow.value(value) is False:
                yield self.finding(
                    "generation runs without the key-value cache",
                    "leave use_cache on for generation; training alone does without it",
                    cases=[at(module, module.statement(value) or value)],
                    fix=fix(module, replace(module, value, "True")) if isinstance(value, ast.Constant) else None,
                )


def _switch(target: ast.expr) -> bool:
    """`....generation_config.use_cache`"""
    return (
        isinstance(target, ast.Attribute)
        and target.attr == "use_cache"
        and isinstance(target.value, ast.Attribute)
        and target.value.attr == "generation_config"
    )
