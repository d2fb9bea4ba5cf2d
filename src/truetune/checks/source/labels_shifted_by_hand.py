"""Labels are shifted by hand for a model that shifts them itself.

## What it does
Looks for labels that are the ids from position 1 on (`ids[1:] + [-100]`, `ids[:, 1:]`, `torch.roll(ids, -1)`) beside
the ids themselves, given to a transformers model or in a row for a trainer, or in a batch of a loop that takes the
model's own loss.

## Why it is bad
The model shifts once more: each position learns the token after the next. The loss is perfect, the output is nonsense.

## Example
```python
from transformers import AutoTokenizer, Trainer

tokenizer = AutoTokenizer.from_pretrained("model")


def encode(row):
    ids = tokenizer(row["text"])["input_ids"]
    return {"input_ids": ids, "labels": ids[1:] + [-100]}


trainer = Trainer(model="model", train_dataset=[encode({"text": "Hi"})])
```

## Use instead
```python
from transformers import AutoTokenizer, Trainer

tokenizer = AutoTokenizer.from_pretrained("model")


def encode(row):
    ids = tokenizer(row["text"])["input_ids"]
    return {"input_ids": ids, "labels": list(ids)}


trainer = Trainer(model="model", train_dataset=[encode({"text": "Hi"})])
```

## Fix safety
Models of transformers, and the trainers on them, want labels that stand at the position of their own token.

## References
- huggingface/transformers#47394, huggingface/transformers#37830, InternLM/InternLM#318, allenai/open-instruct#1549
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes import case_at
from truetune.source.module import Module

OTHER_LOSSES = (
    "torch.nn.functional.cross_entropy",
    "torch.nn.functional.nll_loss",
    "torch.nn.CrossEntropyLoss",
    "torch.nn.NLLLoss",
)
MASKED_SHORT = re.compile(r"\[-100\] \* \(len\(.*?\) - 1\) \+ ")
"""A mask that is one token shorter than the prompt"""


class LabelsShiftedByHand(SourceRule):
    code = "SRC051"
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    looks_at = CodePlaces(
        "labels that are given beside their ids", lambda module: _labels_with_ids(module)
    )

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        takes_own_loss = _takes_own_loss(module)
        for labels, ids in _labels_with_ids(module):
            shifted = next(
                (found for o in module.flow.origins(labels) if (found := _shifted_part(o.node))),
                None,
            )
            called = isinstance(module.scopes.parent.get(labels), ast.keyword)
            fits = ids is not None and (takes_own_loss or not _leaves_last_out(module, ids))
            if shifted is not None and (called or fits):
                yield self.finding(
                    "labels are shifted by hand, and the model shifts them again: each position"
                    " learns the token after the next",
                    "give labels that stand where their tokens stand (a copy of the ids, -100 where"
                    " nothing is learned)",
                    cases=[case_at(module, labels)],
                )


def _labels_with_ids(module: Module) -> Iterator[tuple[ast.expr, ast.expr | None]]:
    """Labels with the ids beside them: in a row for a trainer of transformers, or in a call of its model."""
    trains = any("trainer" in module.flow.types(call.node) for call in module.all_calls)
    for node in module.nodes(ast.Dict) if trains or _takes_own_loss(module) else ():
        entries = {
            k.value: v
            for k, v in zip(node.keys, node.values, strict=True)
            if isinstance(k, ast.Constant)
        }
        if "labels" in entries and "input_ids" in entries:
            yield entries["labels"], entries["input_ids"]
    for call in module.all_calls:
        if "labels" in call.keywords and "model" in module.flow.types(call.node.func):
            yield call.keywords["labels"], call.argument(0, "input_ids")


def _takes_own_loss(module: Module) -> bool:
    """Does a loop backpropagate the loss that a model computes of a batch (`model(**batch).loss`), and no other?"""
    if not module.mentions(".backward(") or any(module.calls(*OTHER_LOSSES)):
        return False
    for node in module.nodes(ast.Attribute):
        call = module.flow.producing_call(node.value) if node.attr == "loss" else None
        if call is not None and "model" in module.flow.types(call.node.func):
            return any(word.arg is None for word in call.node.keywords)
    return False


def _shifted_part(node: ast.AST) -> ast.AST | None:
    """`x[1:]`, `x[:, 1:]`, alone or with a filler behind, or `roll(x, -1)`."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return node if MASKED_SHORT.match(ast.unparse(node)) else _shifted_part(node.left)
    if isinstance(node, ast.Call):
        return _shifted_by_call(node)
    if isinstance(node, ast.Subscript) and _begins_at_second(node):
        return node
    return None


def _shifted_by_call(node: ast.Call) -> ast.AST | None:
    """`cat([x[1:], filler])`, `roll(x, -1)`, and a method without arguments of what is moved: `x[1:].clone()`."""
    function = ast.unparse(node.func)
    joined = node.args[0] if node.args else None
    if function.endswith((".cat", ".concat")) and isinstance(joined, (ast.List, ast.Tuple)):
        return _shifted_part(joined.elts[0]) if joined.elts else None
    if function.endswith("roll"):
        shifts = [ast.unparse(argument) for argument in node.args[1:]]
        shifts += [ast.unparse(one.value) for one in node.keywords if one.arg == "shifts"]
        if shifts[:1] == ["-1"]:
            return node
    if isinstance(node.func, ast.Attribute) and not node.args:
        return _shifted_part(node.func.value)
    return None


def _begins_at_second(node: ast.Subscript) -> bool:
    """Does a slice leave out the first token alone: `x[1:]`, `x[:, 1:]`?"""
    parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    last = parts[-1]
    if not isinstance(last, ast.Slice) or last.lower is None or last.upper:
        return False
    return ast.unparse(last.lower) == "1"


def _leaves_last_out(module: Module, ids: ast.expr) -> bool:
    """Are the ids cut before their last? Then a loss of the user's own may be meant."""
    return any(
        isinstance(part, ast.Slice) and part.upper is not None and ast.unparse(part.upper) == "-1"
        for origin in module.flow.origins(ids)
        for part in ast.walk(origin.node)
    )
