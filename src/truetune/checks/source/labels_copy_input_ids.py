"""Labels are a plain copy of padded `input_ids`: pads are learned.

## What it does
It finds `labels = input_ids` (copied, cloned or as it is) where the tokenizer call pads, no -100 is in sight, and no
collator masks pads later. A file that trains nothing may leave the labels to a collator elsewhere: a warning there.

## Why it is bad
Pads behind the answer count in the loss, which falls with more padding, and the model learns to write pads.

## Example
```python
from datasets import load_dataset
from transformers import AutoTokenizer

tok = AutoTokenizer.from_pretrained("some/model")


def encode(rows):
    batch = tok(rows["text"], padding="max_length", max_length=512, truncation=True)
    batch["labels"] = batch["input_ids"].copy()
    return batch


data = load_dataset("some/rows", split="train").map(encode, batched=True)
```

## Use instead
```python
from datasets import load_dataset
from transformers import AutoTokenizer

tok = AutoTokenizer.from_pretrained("some/model")


def encode(rows):
    batch = tok(rows["text"], padding="max_length", max_length=512, truncation=True)
    batch["labels"] = [
        [token if seen else -100 for token, seen in zip(ids, mask)]
        for ids, mask in zip(batch["input_ids"], batch["attention_mask"])
    ]
    return batch


data = load_dataset("some/rows", split="train").map(encode, batched=True)
```

## Fix safety
Safe: it masks by the attention mask, so that an EOS which is also the pad is still learned.

## References
- wangshy31/OneRec-Think#8, JulesBelveze/bert-squeeze#80, Blaizzy/mlx-vlm#1392
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.labels import column, holds_ignored_label, masks_by_id, padded
from truetune.checks.source.places import at, fix
from truetune.source.calls import Call
from truetune.source.edits import Changes, replace
from truetune.source.module import Module

COPIES = ("copy", "clone", "detach", "tolist")
REBUILT = ("transformers.DataCollatorForLanguageModeling", "trl.DataCollatorForCompletionOnlyLM", "trl.SFTTrainer")
"""They make labels themselves"""


class LabelsCopyInputIds(SourceRule):
    code = "TT710"
    severity = "error"

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        if any(module.calls(*REBUILT)) or any(masks_by_id(module)):
            return
        trained = any({"trainer", "optimizer", "model"} & module.flow.kinds(call.node) for call in module.all_calls)
        for node, value in _labels(module):
            source = column(module, _copied(module, value))
            call = padded(module, source[0]) if source and source[1] == "input_ids" else None
            around = module.scopes.of[node].node
            if source is None or call is None or (around is not module.tree and holds_ignored_label(module, around)):
                continue
            yield self.finding(
                "labels are a copy of padded input_ids: pads are learned"
                + ("" if trained else ", unless the collator of the training makes labels anew"),
                "set labels to -100 where attention_mask is 0",
                severity=self.severity if trained else "warning",
                evidence=[f"line {module.place(call.node)[0]} pads"],
                cases=[at(module, node), at(module, call.node)],
                fix=fix(module, _masked(module, value, source[0], call, around)),
            )


def _labels(module: Module) -> Iterator[tuple[ast.AST, ast.expr]]:
    """`x["labels"] = value`, and `labels=value` given to a model."""
    for node in module.nodes(ast.Assign):
        place = column(module, node.targets[0])
        if place is not None and place[1] == "labels":
            yield node, node.value
    for call in module.all_calls:
        if "labels" in call.keywords and "model" in module.flow.kinds(call.node.func):
            yield call.keywords["labels"], call.keywords["labels"]


def _copied(module: Module, value: ast.expr) -> ast.expr:
    """What is copied: `x` of `x.copy()`, `list(x)`, `copy.deepcopy(x)`."""
    while isinstance(value, ast.Call):
        call = module.flow.call(value)
        if call.method in COPIES and call.receiver is not None:
            value = call.receiver
        elif call.named("list", "copy.copy", "copy.deepcopy", "torch.clone") and len(call.args) == 1:
            value = call.args[0]
        else:
            break
    return value


def _masked(module: Module, value: ast.expr, batch: ast.expr, call: Call, function: ast.AST) -> Changes:
    text, kind = module.text_of(batch), module.flow.value(call.keywords.get("return_tensors"))
    ids, mask = f'{text}["input_ids"]', f'{text}["attention_mask"]'
    if kind == "pt":
        return replace(module, value, f"{ids}.masked_fill({mask} == 0, -100)")
    batched = [
        module.flow.value(c.keywords.get("batched")) is True
        for c in module.methods("map")
        if (given := c.argument(0, "function")) is not None and module.flow.function(given) is function
    ]
    if (kind is not None and "return_tensors" in call.keywords) or len(set(batched)) != 1:
        return ()
    one = "[token if seen else -100 for token, seen in zip({}, {})]"
    if not batched[0]:
        return replace(module, value, one.format(ids, mask))
    return replace(module, value, f"[{one.format('ids', 'mask')} for ids, mask in zip({ids}, {mask})]")
