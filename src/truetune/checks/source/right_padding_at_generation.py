"""A batch is padded on the right and then generated from.

## What it does
Follows a batch that a tokenizer pads into `generate`, and looks at the side: an error where the file sets
`padding_side="right"`, a warning where it sets none (most tokenizers pad on the right).

## Why it is bad
New tokens are appended after the pads: short rows of a batch get garbage, and a batch of one is fine.

## Example
```python
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("model", padding_side="right")
model = AutoModelForCausalLM.from_pretrained("model")
batch = tokenizer(["Hi", "How do you do?"], padding=True, return_tensors="pt")
out = model.generate(**batch, max_new_tokens=20)
```

## Use instead
```python
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("model", padding_side="left")
model = AutoModelForCausalLM.from_pretrained("model")
batch = tokenizer(["Hi", "How do you do?"], padding=True, return_tensors="pt")
out = model.generate(**batch, max_new_tokens=20)
```

## Fix safety
`padding_side="left"` for generation is safe; a tokenizer that trains as well may want the right side there.

## References
- huggingface/transformers#34842, kserve/kserve#3534, Vision-CAIR/MiniGPT-4#129
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.generation import encodes_apart, encodings, generations, ids_of, one_prompt, padded, pads
from truetune.checks.source.places import at
from truetune.source.calls import Call
from truetune.source.module import Module


class RightPaddingAtGeneration(SourceRule):
    code = "TT737"
    severity = "error"

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        for call in generations(module) if not encodes_apart(module) else ():
            batch = next(
                (made for made in _batches(module, call) if pads(module, made) and not one_prompt(module, made)), None
            )
            if batch is None or (side := _side(module, batch)) == "left":
                continue
            said = "on the right" if side else "on the tokenizer's own side, and no side is set"
            yield self.finding(
                f"a batch is padded {said}, and generated from: new tokens would follow the pads",
                'set padding_side="left" on the tokenizer (or in its call) before generation',
                severity="error" if side else "warning",
                cases=[at(module, call.node), at(module, batch.node)],
            )


def _batches(module: Module, call: Call) -> Iterator[Call]:
    """The calls of a tokenizer on several texts whose result this `generate` gets."""
    given = [keyword.value for keyword in call.node.keywords if keyword.arg is None]
    for node in given:
        yield from encodings(module, node)
    if (ids := ids_of(call)) is not None and (encoded := padded(module, ids)) is not None:
        yield encoded.call


def _side(module: Module, batch: Call) -> str | None:
    """The side that is set anywhere for tokenizers: left wins, then right; None where none is."""
    if "padding_side" in batch.keywords:
        return str(module.flow.value(batch.keywords["padding_side"]))
    sides = {
        str(module.flow.value(value))
        for value in (
            *(call.keywords["padding_side"] for call in module.all_calls if "padding_side" in call.keywords),
            *(node.value for node in module.nodes(ast.Assign) for target in node.targets if _is_side(target)),
        )
    }
    if not sides or "padding_side" not in module.text:
        return None
    return "right" if sides == {"right"} else "left"


def _is_side(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "padding_side"
