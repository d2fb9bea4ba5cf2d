"""A sum or mean over the positions of a batch includes padding: a row's value depends on the other rows.

## What it does
Traces the hidden states and log-probabilities of a model in a script, with their axes, back to the tokenizer call that
pads the batch. It fires if `mean` or `sum` reduces the axis of the positions without a mask.

## Why it is bad
A short text in a batch with a long one is mostly padding, and so is its embedding or the log-probability of its answer.
Another order of the rows gives other values, and a preference loss learns from lengths.

## Example
```python
from transformers import AutoModel, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("model")
model = AutoModel.from_pretrained("model")
batch = tokenizer(["Hi", "How do you do?"], padding=True, return_tensors="pt")
vectors = model(**batch).last_hidden_state.mean(dim=1)
```

## Use instead
```python
from transformers import AutoModel, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("model")
model = AutoModel.from_pretrained("model")
batch = tokenizer(["Hi", "How do you do?"], padding=True, return_tensors="pt")
mask = batch["attention_mask"].unsqueeze(-1)
vectors = (model(**batch).last_hidden_state * mask).sum(dim=1) / mask.sum(dim=1)
```

## Fix safety
There is no automatic fix. The values change, so a classifier head trained on the old ones must be trained again.

## References
- huggingface/transformers#17463
- 0xallam/Direct-Preference-Optimization#4
- HKUDS/LightRAG#3675
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.pads_read_or_pooled_as_tokens import poolings_that_include_pads
from truetune.source.parsed_source_file import Module


def _sums_along_an_axis(module: Module) -> Iterator[ast.AST]:
    """Sums and means that take an axis away."""
    for call in module.methods("mean", "sum"):
        if call.args or "dim" in call.keywords:
            yield call.node
    yield from (call.node for call in module.calls("torch.mean", "torch.sum"))


class PadsPooledWithTokens(SourceRule):
    code = "SRC523"
    fault = Fault.PADDING_CHANGES_RESULTS
    symptoms = ("odd-metrics",)
    severity = "warning"
    looks_at = CodePlaces("sums and means along an axis", _sums_along_an_axis)

    def findings(self) -> Iterator[Finding]:
        """Findings on sums and means over positions that no mask is part of."""
        module = self.subject
        if next(_sums_along_an_axis(module), None) is None:
            return
        for pooled_pads in poolings_that_include_pads(module):
            yield self.finding(
                f"the {pooled_pads.what} over the positions of a padded batch includes the padding: the value of a row"
                " depends on the longest row in its batch",
                "multiply by attention_mask before the sum, and for a mean divide by the mask's sum: (x *"
                " mask).sum(1) / mask.sum(1)",
                cases=[
                    case_of_node(module, pooled_pads.node),
                    case_of_node(module, pooled_pads.padding),
                ],
            )
