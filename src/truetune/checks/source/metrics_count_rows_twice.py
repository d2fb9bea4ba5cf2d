"""A metric over several processes counts rows twice: `gather` keeps the rows that fill up the last batch.

## What it does
Looks for `accelerator.gather` of predictions and labels in a loop without a backward pass, where nothing in the file
uses `gather_for_metrics`, or cuts the surplus off by itself.

## Why it is bad
accelerate repeats rows of the beginning so that all processes get as many batches. `gather` gives them too: the metric
counts them twice, differs with the number of processes, and is off the more, the smaller the evaluation is.

## Example
```python
from accelerate import Accelerator

accelerator = Accelerator()
model, loader = accelerator.prepare(model, loader)
for batch in loader:
    predictions = model(**batch).logits.argmax(-1)
    predictions, labels = accelerator.gather((predictions, batch["labels"]))
    metric.add_batch(predictions=predictions, references=labels)
```

## Use instead
```python
from accelerate import Accelerator

accelerator = Accelerator()
model, loader = accelerator.prepare(model, loader)
for batch in loader:
    predictions = model(**batch).logits.argmax(-1)
    predictions, labels = accelerator.gather_for_metrics((predictions, batch["labels"]))
    metric.add_batch(predictions=predictions, references=labels)
```

## Fix safety
Safe: `gather_for_metrics` is `gather` without the surplus of the last batch. It must be called by every process.

## References
- https://huggingface.co/docs/accelerate/concept_guides/performance
- huggingface/accelerate#854
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from truetune.checks.code_places import CodePlaces
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.own_processes import LOOPS
from truetune.checks.source.places import at
from truetune.source.calls import Call
from truetune.source.module import Module

OF_METRICS = re.compile(r"pred|label|logit|target|ref|answer|generated", re.I)
CUTS = re.compile(
    r"samples_seen|\[\s*:\s*(?:len\(|num_|total|n_)|even_batches|split_batches|join_uneven"
)
"""Signs that the surplus is cut off by hand, or that there is none"""


def _gathered(module: Module) -> Iterator[Call]:
    """Tensors of all processes that accelerate puts together in a loop."""
    for call in module.methods("gather", "gather_for_metrics"):
        made = module.flow.made(call.receiver) if call.receiver is not None else None
        if made is not None and made.named("accelerate.Accelerator"):
            if any(isinstance(one, LOOPS) for one in module.parents(call.node)):
                yield call


class MetricsCountRowsTwice(SourceRule):
    code = "TT876"
    severity = "warning"
    looks_at = CodePlaces("tensors that accelerate gathers in loops", _gathered)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        if module.mentions("gather_for_metrics") or CUTS.search(module.text):
            return
        for call in _gathered(module):
            if (
                call.method == "gather"
                and _is_of_metrics(call)
                and not _is_in_training(module, call)
            ):
                yield self.finding(
                    "accelerator.gather counts the rows twice that fill up the last batch: the metric differs with the"
                    " number of processes",
                    "use accelerator.gather_for_metrics",
                    cases=[at(module, call.node)],
                )


def _is_of_metrics(call: Call) -> bool:
    given = call.argument(0, "tensor")
    text = ast.unparse(given) if given is not None else ""
    return bool(OF_METRICS.search(text)) and "loss" not in text


def _is_in_training(module: Module, call: Call) -> bool:
    loops = [one for one in module.parents(call.node) if isinstance(one, LOOPS)]
    return "backward" in module.text_of(loops[0])
