"""Predictions are gathered from several processes together with the repeated rows that fill up the last batch.

## What it does
Looks for `accelerator.gather` of predictions and labels, in a loop that does not train, in a file with neither
`gather_for_metrics` nor a cut to the length of the data set.

## Why it is bad
Accelerate gives each process (one per GPU) the same number of rows, and repeats some from the beginning to fill up the
last batch. `gather` returns these too: they count twice, the score depends on the number of GPUs, and lists of
predictions are longer than the data.

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
Safe: it drops the repeated rows of the last batch, and otherwise returns the same.

## References
- huggingface/accelerate documentation, `Accelerator.gather_for_metrics`; huggingface/accelerate#1409
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

LABEL_WORDS = re.compile(r"label|ref(?:erence)?s?\b|target|gold|truth", re.I)
PREDICTION_WORDS = re.compile(r"pred|logits|argmax|outputs?\b|generated|scores?\b", re.I)
CUTTING_CODE = re.compile(
    r"gather_for_metrics|\[\s*:\s*len\(|samples_seen|num_samples|drop_last\s*=\s*True|even_batches\s*=\s*False"
)
"""Signs that the repeated rows are dropped, or that there are none"""


def _accelerator_gather_calls(module: Module) -> Iterator[Call]:
    """Calls of an Accelerator that gather what processes have."""
    for call in module.methods("gather", "gather_for_metrics"):
        if call.receiver is not None and "accelerator" in module.flow.types(call.receiver):
            yield call


class GatheredRowsCountTwice(SourceRule):
    code = "SRC096"
    fault = Fault.ROWS_OF_PROCESSES_MISCOUNTED
    severity = "warning"
    looks_at = CodePlaces("calls that gather from all processes", _accelerator_gather_calls)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        if any(CUTTING_CODE.search(part.text) for part in module.self_and_files_run_together):
            return
        for call in _accelerator_gather_calls(module):
            if call.method != "gather":
                continue
            given = _source_text_of_gathered_values(module, call)
            if (
                PREDICTION_WORDS.search(given)
                and LABEL_WORDS.search(given)
                and _is_in_loop_without_training(module, call)
            ):
                yield self.finding(
                    "accelerator.gather also returns the repeated rows that fill up the last batch: they count"
                    " twice in the score",
                    "call accelerator.gather_for_metrics(...) instead of gather",
                    cases=[case_of_node(module, call.node)],
                )


def _source_text_of_gathered_values(module: Module, call: Call) -> str:
    """What is gathered: the arguments as they stand, and what their names were set to."""
    texts = [module.text_of(one) for one in call.args]
    names = (
        part
        for one in call.args
        for part in ast.walk(one)
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load)
    )
    for name in names:
        origins = module.flow.origins(name)
        texts += [
            ast.unparse(origin.node) for origin in origins if isinstance(origin.node, ast.expr)
        ]
    return ", ".join(texts)


def _is_in_loop_without_training(module: Module, call: Call) -> bool:
    """Does a call stand in a loop that trains nothing?"""
    loop = next((p for p in module.parents(call.node) if isinstance(p, ast.For)), None)
    if loop is None:
        return False
    return not any(isinstance(n, ast.Attribute) and n.attr == "backward" for n in ast.walk(loop))
