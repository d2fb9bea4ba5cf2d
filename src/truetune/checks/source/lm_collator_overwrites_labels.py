"""Labels are masked by hand, and a collator overwrites them.

## What it does
It finds labels with -100 in them (in a function given to `map`, a dataset's `__getitem__`, or rows in the file)
together with transformers' `DataCollatorForLanguageModeling(mlm=False)`.

## Why it is bad
That collator always rebuilds `labels` from `input_ids`: the loss covers the prompts, whatever was masked.

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
Unsafe: `DataCollatorForSeq2Seq` keeps the labels and pads them with -100, but every row must have labels.

## References
- huggingface/transformers#26357, oobabooga/text-generation-webui#4031
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node, fix_of_changes
from truetune.checks.source.evidence.hand_masked_labels import (
    hand_masked_labels,
    hand_masked_labels_in_linked_files,
    outermost_function_around,
)
from truetune.checks.source.evidence.label_masking_and_padding import (
    LM_COLLATOR_CALLS,
    lm_collators_masking_by_id,
)
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.make_source_edits import (
    Change,
    Changes,
    insert_statements_after,
    replace_expression,
)
from truetune.source.parsed_source_file import Module

KEPT_ARGUMENTS = frozenset(("tokenizer", "mlm", "pad_to_multiple_of", "return_tensors"))
"""Settings that both collators have, or that go"""


class LmCollatorOverwritesLabels(SourceRule):
    code = "SRC008"
    fault = Fault.LOSS_MASK_IGNORED_OR_OVERWRITTEN
    symptoms = ("never-stops", "nothing-is-learned")
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    looks_at = LM_COLLATOR_CALLS

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        collators = list(lm_collators_masking_by_id(module))
        masked = list(hand_masked_labels(module)) if collators else []
        elsewhere = list(hand_masked_labels_in_linked_files(module)) if collators else []
        for call in collators:
            made = [
                node
                for node, used in masked + elsewhere
                if outermost_function_around(module, used)
                in (None, outermost_function_around(module, call.node))
            ]
            if not made:
                continue
            yield self.finding(
                "labels are masked by hand, but this collator replaces them with a copy of"
                " input_ids: the loss covers the prompts",
                "use DataCollatorForSeq2Seq(tokenizer) instead, which keeps labels and pads them with -100",
                evidence=[_masking_evidence(module, made[0])],
                cases=[case_of_node(module, call.node), case_of_node(module, made[0])],
                fix=fix_of_changes(module, _edits_for_other_collator(module, call), safe=False),
            )


def _masking_evidence(module: Module, node: ast.AST) -> str:
    """The evidence of where labels are masked, as a text."""
    home = module.home(node)
    where = "" if home is module else f" of {Path(home.path).name}"
    return f"line {module.place(node)[0]}{where} masks labels"


def _edits_for_other_collator(module: Module, call: Call) -> Changes:
    """The other collator in its place; nothing where a setting has no meaning for it."""
    function, name = call.node.func, "DataCollatorForSeq2Seq"
    mlm = next((k for k in call.node.keywords if k.arg == "mlm"), None)
    if (
        mlm is None
        or not call.named("transformers.*")
        or not call.keywords.keys() <= KEPT_ARGUMENTS
    ):
        return ()
    padding = replace_expression(module, mlm, "padding=True")
    if isinstance(function, ast.Attribute):
        end = module.span(function)[1]
        return (*padding, Change(end - len(function.attr), end, name))
    statement = _import_statement_of(module, function)
    if statement is None:
        return ()
    changes = (*padding, *replace_expression(module, function, name))
    if name in {alias.name for alias in statement.names}:
        return changes
    added = insert_statements_after(module, statement, f"from transformers import {name}")
    return (*added, *changes) if added else ()


def _import_statement_of(module: Module, name: ast.expr) -> ast.ImportFrom | None:
    """The first `from ... import` that a name comes from; None where it comes from none."""
    if not isinstance(name, ast.Name):
        return None
    nodes = (binding.node for binding in module.scopes.bindings_that_reach(name))
    return next((node for node in nodes if isinstance(node, ast.ImportFrom)), None)
