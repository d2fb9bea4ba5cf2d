"""Labels are padded with the pad token's id, so pads count in the loss.

## What it does
Looks for `pad_sequence(labels, padding_value=tokenizer.pad_token_id)` and the like: labels padded with something other
than -100. `pad_sequence` without a value pads with 0, which is a token or a class as well: its result is followed to
the `labels=` of a model. Scripts that write -100 or `ignore_index` anywhere are not reported.

## Why it is bad
Pads then count in the loss: it falls with every pad, and the model learns to write pads.

## Example
```python
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("model")


def collate(rows):
    labels = [row["labels"] for row in rows]
    return {"labels": pad_sequence(labels, batch_first=True, padding_value=tokenizer.pad_token_id)}
```

## Use instead
```python
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("model")


def collate(rows):
    labels = [row["labels"] for row in rows]
    return {"labels": pad_sequence(labels, batch_first=True, padding_value=-100)}
```

## Fix safety
Safe: the loss ignores -100. The loss rises, because it no longer includes easy pads.

## References
- JulesBelveze/bert-squeeze#80, Blaizzy/mlx-vlm#1392
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node, fix_of_changes
from truetune.checks.source.evidence.labels_padded_with_zero import labels_padded_with_zero
from truetune.source.make_source_edits import replace_expression
from truetune.source.parsed_source_file import Module

MASK_SIGNS = ("-100", "IGNORE_INDEX", "ignore_index")
"""Words of a script that masks labels, or has its own loss"""


def _padded_labels_and_fillers(module: Module) -> Iterator[tuple[ast.expr, ast.expr]]:
    """What makes padded labels, with what it pads them with."""
    for node in module.nodes(ast.Assign):
        made = module.flow.call(node.value) if isinstance(node.value, ast.Call) else None
        filler = (
            made.argument(1, "fill_value")
            if made is not None and made.named("torch.full*")
            else None
        )
        if filler is not None and "label" in ast.unparse(node.targets[0]).lower():
            yield node.value, filler
    for call in module.calls("torch.nn.utils.rnn.pad_sequence"):
        rows, filler = call.argument(0, "sequences"), call.argument(2, "padding_value")
        if rows is not None and filler is not None and "label" in ast.unparse(rows).lower():
            yield call.node, filler


def _fillers_of_labels(module: Module) -> Iterator[ast.AST]:
    """What pads labels, and what pads rows without a value."""
    yield from (node for node, _ in _padded_labels_and_fillers(module))
    for call in module.calls("torch.nn.utils.rnn.pad_sequence"):
        if call.lacks("padding_value", 2):
            yield call.node


class LabelsPaddedWithPadToken(SourceRule):
    code = "SRC058"
    fault = Fault.PADDING_IN_LOSS
    symptoms = ("never-stops", "odd-metrics")
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    looks_at = CodePlaces("fillers of labels", _fillers_of_labels)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        for node, filler in _padded_labels_and_fillers(module):
            yield from self._findings_on_filler(node, filler)
        if module.mentions(*MASK_SIGNS):
            return
        for padding in labels_padded_with_zero(module):
            yield self.finding(
                "labels are padded with 0, which is also a token or a class: pads count in the loss",
                "pad labels with -100: pad_sequence(..., padding_value=-100)",
                cases=[case_of_node(module, padding)],
            )

    def _findings_on_filler(self, node: ast.AST, filler: ast.expr) -> Iterator[Finding]:
        """The finding on labels that are filled up with the pad token's id."""
        module = self.subject
        if "pad_token_id" in ast.unparse(filler) and not module.mentions(*MASK_SIGNS):
            yield self.finding(
                "labels are padded with the pad token's id: pads count in the loss",
                "pad labels with -100, which the loss ignores",
                cases=[case_of_node(module, node)],
                fix=fix_of_changes(module, replace_expression(module, filler, "-100")),
            )
