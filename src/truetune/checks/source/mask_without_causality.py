"""An attention mask that a script builds lets the tokens of a decoder see later ones.

## What it does
Follows, in a script that trains a decoder, each mask over pairs of positions that the script builds: documents compared
with one another (`seg[:, :, None] == seg[:, None, :]`), an outer product of the padding mask, blocks along the
diagonal, a FlexAttention `mask_mod`. It fires if such a mask reaches the model, a collator's `attention_mask` or
PyTorch's attention, and contains no condition on the order of positions (`tril`, `triu`, `q >= kv`, `is_causal`).
Encoders and models that are trained in both directions are not reported.

A mask for a hand-written attention that separates later positions from earlier ones (`tril`, `triu`, comparisons of
positions) is evaluated for a few pairs, by the convention of the function that gets it: it has to hide the later ones.

## Why it is bad
transformers uses a four-dimensional mask as it is, and adds no causal part. Each token sees the one that it has to
predict: the loss falls to nearly nothing, and the model learns to copy. In generation there is nothing to copy, and it
writes word salad.

## Example
```python
import torch
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("model")
for batch in loader:
    seg = batch["segment_ids"]
    mask = seg[:, :, None] == seg[:, None, :]
    out = model(input_ids=batch["input_ids"], attention_mask=mask[:, None], labels=batch["labels"])
    out.loss.backward()
```

## Use instead
```python
import torch
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("model")
for batch in loader:
    seg = batch["segment_ids"]
    mask = seg[:, :, None] == seg[:, None, :]
    mask = mask & torch.ones_like(mask).tril()
    out = model(input_ids=batch["input_ids"], attention_mask=mask[:, None], labels=batch["labels"])
    out.loss.backward()
```

## Fix safety
There is no automatic fix. The training has to be repeated from the base: nothing useful was learned.

## References
- https://huggingface.co/blog/poedator/4d-masks
- harvard-edge/cs249r_book#1785 (a mask in the sense of another function)
- paiml/entrenar#310
- PyTorch documentation, "FlexAttention": `and_masks(causal, document)`
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.masks_without_causality import (
    MASK_NAMES,
    masks_without_causality,
)
from truetune.checks.source.evidence.own_attention_masks_showing_later_tokens import (
    attention_places,
    leaky_masks,
)
from truetune.source.parsed_source_file import Module


def _attention_mask_places(module: Module) -> Iterator[ast.AST]:
    """Places that name an attention mask."""
    yield from (one for one in module.nodes(ast.keyword) if one.arg in MASK_NAMES)
    yield from (one for one in module.nodes(ast.Constant) if one.value in MASK_NAMES)
    yield from attention_places(module)


LEAKS = {
    "later": "the mask leaves later positions visible: each token sees the one that it has to predict",
    "reversed": "the mask is inverted: True means visible in scaled_dot_product_attention, but"
    " hidden in nn.MultiheadAttention and masked_fill; here each token sees only the later ones",
    "added": "the mask's numbers are added to the attention scores, and 0 and 1 hide nothing: each token sees the one"
    " that it has to predict",
    "none": "the layers are called without a mask but predict the next token: each token sees the one that it has to"
    " predict",
}
"""What is wrong with a mask of own attention"""


class MaskWithoutCausality(SourceRule):
    code = "SRC318"
    fault = Fault.ATTENTION_MASK_WRONG
    symptoms = ("garbage-output", "nothing-is-learned", "odd-metrics")
    severity = "error"
    looks_at = CodePlaces("attention masks that are given", _attention_mask_places)

    def findings(self) -> Iterator[Finding]:
        for mask in masks_without_causality(self.subject):
            yield self.finding(
                f"the attention mask allows {mask.what}, also later ones: each token sees the one that it has to"
                " predict",
                "add mask = mask & torch.ones_like(mask).tril() (FlexAttention: q_idx >= kv_idx in the"
                " mask_mod), and"
                " train again from the base",
                cases=[case_of_node(self.subject, mask.node)],
            )
        for leak in leaky_masks(self.subject):
            yield self.finding(
                LEAKS[leak.how],
                "hide the later positions: pass is_causal=True, or a causal mask from torch.ones(t, t).tril()"
                " (inverted for"
                " nn.MultiheadAttention and masked_fill), and train again",
                cases=[case_of_node(self.subject, leak.node)],
            )
