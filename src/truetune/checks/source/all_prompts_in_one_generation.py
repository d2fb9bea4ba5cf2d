"""All rows of a file are generated in one call: one batch, padded to its longest prompt.

## What it does
Looks for a `generate` call on a transformers model that is in no loop and gets the tokens of a list with one entry for
each row of a file or data set. It is a warning from 64 rows on, if the file is here to be counted, and info if it is
not. Not reported: a slice of the rows, a batch of a loop, fewer rows, and engines that make batches themselves (vLLM, a
pipeline with `batch_size`).

## Why it is bad
The key-value cache has a slot for each token of each row: rows x (longest prompt + `max_new_tokens`). One answer needs
megabytes; 500 answers at once need the memory of many GPUs, and all of them wait for the longest.

## Example
```python
import json

from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("model", padding_side="left")
model = AutoModelForCausalLM.from_pretrained("model", device_map="cuda")
rows = [json.loads(line) for line in open("test.jsonl")]
prompts = [row["prompt"] for row in rows]
inputs = tokenizer(prompts, padding=True, return_tensors="pt").to("cuda")
outputs = model.generate(**inputs, max_new_tokens=2048, do_sample=False)
```

## Use instead
```python
import json

from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("model", padding_side="left")
model = AutoModelForCausalLM.from_pretrained("model", device_map="cuda")
rows = [json.loads(line) for line in open("test.jsonl")]
prompts = [row["prompt"] for row in rows]
for start in range(0, len(prompts), 16):
    inputs = tokenizer(prompts[start : start + 16], padding=True, return_tensors="pt").to("cuda")
    outputs = model.generate(**inputs, max_new_tokens=2048, do_sample=False)
```

## Fix safety
Safe with left padding: greedy answers do not depend on the batch, except for rounding. Raise 16 until the GPU's memory
is used.

## References
- https://huggingface.co/docs/transformers/llm_tutorial_optimization (the key-value cache)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from truetune.checks.config.evidence.upper_bound_of_optimizer_steps import count_rows
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.names_of_row_reading_calls import READERS, TAKES_ROWS
from truetune.checks.source.evidence.nodes_that_an_expression_is_computed_from import backward_slice
from truetune.checks.source.evidence.text_generation_calls import (
    TEXT_GENERATION_CALLS,
    ModelQuestion,
    model_questions,
)
from truetune.checks.source.evidence.what_makes_code_run_again import repetitions_of
from truetune.source.call_with_resolved_names_and_arguments import last_name_of_called
from truetune.source.parsed_source_file import Module

MIN_ROWS = 64
"""Rows in one batch from which it is a warning. Chosen, not measured: 64 answers of 2,048 tokens take 17 GiB of cache
in a model of 8 billion parameters with grouped queries (128 KiB a token)"""
ROW_SUFFIXES = (".jsonl", ".json", ".csv", ".parquet", ".tsv")
LIST_MAKERS = frozenset(("list", "tolist", "to_list"))


class AllPromptsInOneGeneration(SourceRule):
    code = "SRC331"
    fault = Fault.REQUESTS_NOT_BATCHED
    symptoms = ("out-of-memory",)
    severity = "warning"
    stability = "preview"
    looks_at = TEXT_GENERATION_CALLS

    def findings(self) -> Iterator[Finding]:
        """Findings on calls of `generate` that get the prompts of all rows of a file in one batch."""
        module = self.subject
        for question in model_questions(module):
            if not _asks_for_all_rows_at_once(module, question):
                continue
            rows = _count_rows_behind_prompts(module, question.text)
            if rows is not None and rows < MIN_ROWS:
                continue
            count = f"{rows:,} rows" if rows is not None else "rows"
            yield self.finding(
                f"generate gets all {count} of the file in one batch: the key-value cache grows with every row, each"
                " padded to the longest prompt and answer, and may not fit in the GPU's memory",
                "loop over slices of the prompts (prompts[i : i + 16]), and tokenize and generate for each; or let"
                " vLLM make the batches",
                severity="warning" if rows is not None else "info",
                cases=[
                    case_of_node(module, question.call.node),
                    case_of_node(module, question.text),
                ],
            )


def _asks_for_all_rows_at_once(module: Module, question: ModelQuestion) -> bool:
    """Is a model of transformers asked once, for a list of all rows that were read?"""
    call = question.call
    if (
        question.is_one
        or call.method != "generate"
        or "model" not in _types_of_receiver(module, call.node)
    ):
        return False
    if any(repetitions_of(module, call.node)) or not _is_list_with_entry_per_row(
        module, question.text
    ):
        return False
    parts = list(backward_slice(module, question.text))
    return any(map(_reads_rows_of_data, parts)) and not any(map(_takes_some_of_the_rows, parts))


def _reads_rows_of_data(part: ast.AST) -> bool:
    """Does a node read the rows of a file or data set?"""
    return isinstance(part, ast.Call) and last_name_of_called(part) in READERS


def _types_of_receiver(module: Module, node: ast.Call) -> frozenset[str]:
    """The types of what `generate` is called on."""
    owner = node.func.value if isinstance(node.func, ast.Attribute) else node.func
    return frozenset(module.flow.types(owner))


def _is_list_with_entry_per_row(module: Module, text: ast.expr) -> bool:
    """Is what is tokenized a list with an entry for each row: a comprehension, a column,
    `.tolist()`?
    """
    for origin in module.flow.origins(text):
        node = origin.node
        if isinstance(node, ast.ListComp):
            return True
        if isinstance(node, ast.Subscript) and _is_column_name(node.slice):
            return True
        if isinstance(node, ast.Call) and last_name_of_called(node) in LIST_MAKERS:
            return True
    return False


def _is_column_name(key: ast.expr) -> bool:
    """Is a key the name of a column?"""
    return isinstance(key, ast.Constant) and isinstance(key.value, str)


def _takes_some_of_the_rows(part: ast.AST) -> bool:
    """Is the node a slice of rows, or a call that takes the first or some of them?"""
    if isinstance(part, ast.Subscript):
        return isinstance(part.slice, ast.Slice) and _may_slice_rows(part)
    return isinstance(part, ast.Call) and last_name_of_called(part) in (*TAKES_ROWS, "filter")


def _may_slice_rows(part: ast.Subscript) -> bool:
    """Does a slice take rows? The turns of one row are taken so too: `row["messages"][:-1]`."""
    owner = part.value
    return not (isinstance(owner, ast.Subscript) and isinstance(owner.slice, ast.Constant))


def _count_rows_behind_prompts(module: Module, text: ast.expr) -> int | None:
    """Rows of the file that the prompts are made of; None where it is not here, or several are named."""
    names = {
        part.value
        for part in backward_slice(module, text)
        if isinstance(part, ast.Constant) and isinstance(part.value, str)
    }
    files = [name for name in names if name.lower().endswith(ROW_SUFFIXES)]
    if len(files) != 1:
        return None
    return count_rows(str(Path(module.path).parent / files[0]))
