"""Labels are made with care, and a collator throws them away.

## What it does
It finds labels with -100 in them (in a function given to `map`, a dataset's `__getitem__`, or rows in the file) beside
transformers' `DataCollatorForLanguageModeling(mlm=False)`.

## Why it is bad
That collator always rebuilds `labels` from `input_ids`: prompts are learned, whatever was masked.

## Example
```python
from datasets import Dataset
from transformers import AutoTokenizer, DataCollatorForLanguageModeling

tok = AutoTokenizer.from_pretrained("gpt2")


def encode(row):
    prompt, answer = tok(row["prompt"])["input_ids"], tok(row["answer"])["input_ids"]
    return {"input_ids": prompt + answer, "labels": [-100] * len(prompt) + answer}


data = Dataset.from_json("rows.jsonl").map(encode)
collator = DataCollatorForLanguageModeling(tok, mlm=False)
```

## Use instead
```python
from datasets import Dataset
from transformers import AutoTokenizer, DataCollatorForSeq2Seq

tok = AutoTokenizer.from_pretrained("gpt2")


def encode(row):
    prompt, answer = tok(row["prompt"])["input_ids"], tok(row["answer"])["input_ids"]
    return {"input_ids": prompt + answer, "labels": [-100] * len(prompt) + answer}


data = Dataset.from_json("rows.jsonl").map(encode)
collator = DataCollatorForSeq2Seq(tok)
```

## Fix safety
Not safe: `DataCollatorForSeq2Seq` keeps the labels and pads them with -100, but every row must have them.

## References
- huggingface/transformers#26357, oobabooga/text-generation-webui#4031
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.labels import column, holds_ignored_label, lm_collators, masks_by_id
from truetune.checks.source.places import at, fix
from truetune.source.calls import Call
from truetune.source.edits import Changes, insert_after, replace
from truetune.source.module import Module


class LmCollatorOverwritesLabels(SourceRule):
    code = "TT703"
    severity = "error"

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        collators = list(lm_collators(module))
        masked = list(_masked_labels(module)) if collators else []
        for call in collators:
            made = [node for node, used in masked if _unit(module, used) in (None, _unit(module, call.node))]
            if not made:
                continue
            yield self.finding(
                "labels are masked by hand, and this collator replaces them with a copy of input_ids",
                "use DataCollatorForSeq2Seq, which keeps labels and pads them with -100",
                evidence=[f"line {module.place(made[0])[0]} masks labels"],
                cases=[at(module, call.node), at(module, made[0])],
                fix=fix(module, _mended(module, call), safe=False),
            )


def _masked_labels(module: Module) -> Iterator[tuple[ast.AST, ast.AST]]:
    """Values of a `labels` column with -100 in them, made where rows are made, and where those rows are asked for."""
    by_id = {*masks_by_id(module)}
    for node, value in _label_values(module):
        function = module.scopes.of[node].node
        user = node if isinstance(function, ast.Module) else _user(module, function)
        inside = value if isinstance(function, ast.Module) else function
        if user is not None and holds_ignored_label(module, inside) and by_id.isdisjoint(ast.walk(inside)):
            yield node, user


def _unit(module: Module, node: ast.AST) -> ast.AST | None:
    """The function or method, not one inside another, that a node stands in; None in the module's own code."""
    around = [p for p in module.parents(node) if isinstance(p, (ast.FunctionDef, ast.AsyncFunctionDef))]
    return around[-1] if around else None


def _label_values(module: Module) -> Iterator[tuple[ast.AST, ast.expr]]:
    for node in module.nodes(ast.Dict, ast.Call, ast.Assign):
        if isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and key.value == "labels":
                    yield node, value
        elif isinstance(node, ast.Call):
            if module.flow.name(node.func) == "dict" and (given := module.flow.call(node).keywords.get("labels")):
                yield node, given
        elif isinstance(node, ast.Assign):
            if (place := column(module, node.targets[0])) is not None and place[1] == "labels":
                yield node, node.value


def _user(module: Module, function: ast.AST) -> ast.AST | None:
    """The `map` or `from_generator` that a function is given to; a dataset's way to a row is used everywhere."""
    if getattr(function, "name", None) == "__getitem__":
        return module.tree
    calls = [c for c in module.all_calls if c.method == "map" or c.named("datasets.*.from_generator")]
    return next(
        (c.node for c in calls if (a := c.argument(0, "function")) is not None and module.flow.function(a) is function),
        None,
    )


def _mended(module: Module, call: Call) -> Changes:
    tokenizer = call.argument(0, "tokenizer")
    function, name = call.node.func, "DataCollatorForSeq2Seq"
    if tokenizer is None or not call.named("transformers.*"):
        return ()
    text = f"{name}({module.text_of(tokenizer)})"
    if isinstance(function, ast.Attribute):
        return replace(module, call.node, f"{module.text_of(function.value)}.{text}")
    if not isinstance(function, ast.Name):
        return ()
    imports = [b.node for b in module.scopes.reaching(function) if isinstance(b.node, ast.ImportFrom)]
    if not imports or module.flow.call_sites.get(name):
        return replace(module, call.node, text) if imports else ()
    added = insert_after(module, imports[0], f"from transformers import {name}")
    return (*added, *replace(module, call.node, text)) if added else ()
