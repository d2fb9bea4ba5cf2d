"""Generation runs without the key-value cache.

## What it does
Looks for `generation_config.use_cache = False` in a file that generates later: a switch of the training that is still
off. `use_cache=False` in a call of `generate` counts in a loop, without a `streamer`; to show one answer, it is what
its author wants, because the model has no cache that works.

## Why it is bad
Each new token then runs the whole text again: time grows with the square of the length, and an evaluation takes hours.

## Example
```python
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("model")
model = AutoModelForCausalLM.from_pretrained("model")
model.generation_config.use_cache = False
out = model.generate(**tokenizer("Hi", return_tensors="pt"), max_new_tokens=512)
```

## Use instead
```python
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("model")
model = AutoModelForCausalLM.from_pretrained("model")
model.generation_config.use_cache = True
out = model.generate(**tokenizer("Hi", return_tensors="pt"), max_new_tokens=512)
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
from truetune.checks.source.generation import GENERATIONS, generations
from truetune.checks.source.places import at, fix
from truetune.source.calls import Call
from truetune.source.edits import replace
from truetune.source.module import Module


class KvCacheLeftOff(SourceRule):
    code = "TT739"
    severity = "warning"
    looks_at = GENERATIONS

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        calls = list(generations(module))
        off = [
            call.keywords["use_cache"]
            for call in calls
            if "use_cache" in call.keywords and _repeats(module, call)
        ]
        if any("use_cache" not in call.keywords for call in calls):
            off += [node.value for node in module.nodes(ast.Assign) if _switch(node.targets[0])]
        for value in off:
            if module.flow.value(value) is False:
                yield self.finding(
                    "generation runs without the key-value cache",
                    "set use_cache = True for generation; training alone does without it",
                    cases=[at(module, module.statement(value) or value)],
                    fix=(
                        fix(module, replace(module, value, "True"))
                        if isinstance(value, ast.Constant)
                        else None
                    ),
                )


def _repeats(module: Module, call: Call) -> bool:
    """Does it stand in a loop, and show no answer as it comes?"""
    loops = (ast.For, ast.While, ast.ListComp, ast.GeneratorExp)
    return "streamer" not in call.keywords and any(
        isinstance(around, loops) for around in module.parents(call.node)
    )


def _switch(target: ast.expr) -> bool:
    """`....generation_config.use_cache`"""
    return (
        isinstance(target, ast.Attribute)
        and target.attr == "use_cache"
        and isinstance(target.value, ast.Attribute)
        and target.value.attr == "generation_config"
    )
