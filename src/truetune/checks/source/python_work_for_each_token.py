"""A class that `generate` calls for each token runs slow Python code.

## What it does
Reads classes derived from StoppingCriteria, LogitsProcessor or LogitsWarper. It warns about a loop in their `__call__`
over the vocabulary (`range(scores.shape[-1])`, `enumerate(scores[0])`, `range(len(tokenizer))`), and reports as info a
StoppingCriteria that decodes the whole sequence, including the prompt. It does not report loops over the rows of a
batch or over a list of allowed ids, results that are cached for the next tokens, or code that decodes only the last
tokens.

## Why it is bad
`generate` calls them once per token. A vocabulary has 30,000 to 250,000 entries. A loop that reads or writes GPU values
one at a time waits for the GPU each time, and a token takes a second instead of 25 milliseconds. Decoding the whole
text gets slower with each token, since prompt and answer are decoded again.

## Example
```python
from transformers import LogitsProcessor

class Allowed(LogitsProcessor):
    def __init__(self, ids):
        self.ids = set(ids)

    def __call__(self, input_ids, scores):
        for i in range(scores.shape[-1]):
            if i not in self.ids:
                scores[:, i] = float("-inf")
        return scores
```

## Use instead
```python
import torch
from transformers import LogitsProcessor

class Allowed(LogitsProcessor):
    def __init__(self, ids):
        self.ids = list(ids)

    def __call__(self, input_ids, scores):
        masked = torch.full_like(scores, float("-inf"))
        masked[:, self.ids] = scores[:, self.ids]
        return masked
```

## Fix safety
Safe: the scores are the same. To stop at certain strings, use `generate(stop_strings=[...], tokenizer=tokenizer)`,
which only looks at the last tokens.

## References
- huggingface/transformers, generation/logits_process.py, generation/stopping_criteria.py (StopStringCriteria)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.source.parsed_source_file import Module

PROCESSORS = ("LogitsProcessor", "LogitsWarper")
CRITERIA = ("StoppingCriteria",)
DECODES = ("decode", "batch_decode")
VOCABULARY = ("vocab_size", "len(tokenizer)", "len(tok)", "get_vocab()", ".vocab)")
"""In what is iterated over, where that is the vocabulary"""
Iterated = ast.For | ast.comprehension


class PythonWorkForEachToken(SourceRule):
    code = "SRC271"
    fault = Fault.GENERATION_OPTIONS_SLOW
    symptoms = ("slow-generation",)
    severity = "warning"
    stability = "preview"
    looks_at = CodePlaces(
        "classes that generate calls after each token",
        lambda m: _per_token_hook_classes_and_methods(m),
    )

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        for owner, method in _per_token_hook_classes_and_methods(module):
            names = [one.arg for one in method.args.args]
            for node in ast.walk(method):
                if not isinstance(node, Iterated) or _loop_fills_missing_cache(
                    module, method, node
                ):
                    continue
                if _loops_over_vocabulary(node.iter, names[2:3]):
                    yield self.finding(
                        f"{owner.name} loops over the vocabulary in Python for each token: tens of thousands of"
                        " passes, each of which may wait for the GPU",
                        "replace the loop by tensor indexing, with ids as a list of the allowed ids: masked ="
                        ' torch.full_like(scores, float("-inf")); masked[:, ids] = scores[:, ids]; return masked',
                        cases=[case_of_node(module, node.iter)],
                    )
                    break
            decoded = (
                _decode_of_whole_row(method, names[1:2])
                if _is_subclass_of_any(owner, CRITERIA)
                else None
            )
            if decoded is not None:
                yield self.finding(
                    f"{owner.name} decodes the whole text, prompt and answer, after each token: each token takes longer"
                    " than the one before",
                    "decode only the last tokens (input_ids[0, -20:]), or drop the class and call"
                    " generate(..., stop_strings=[...], tokenizer=tokenizer)",
                    severity="info",
                    cases=[case_of_node(module, decoded)],
                )


def _per_token_hook_classes_and_methods(
    module: Module,
) -> Iterator[tuple[ast.ClassDef, ast.FunctionDef]]:
    """The classes that generate calls after each token, each with its `__call__`."""
    for owner in module.nodes(ast.ClassDef):
        if not _is_subclass_of_any(owner, (*PROCESSORS, *CRITERIA)):
            continue
        for part in owner.body:
            if isinstance(part, ast.FunctionDef) and part.name == "__call__":
                yield owner, part


def _is_subclass_of_any(owner: ast.ClassDef, names: tuple[str, ...]) -> bool:
    """Is a class made of one of these?"""
    return any(ast.unparse(base).rpartition(".")[2] in names for base in owner.bases)


def _loops_over_vocabulary(iterated: ast.expr, scores: list[str]) -> bool:
    """Does a loop take one entry of the vocabulary after another?"""
    text = ast.unparse(iterated)
    if any(word in text for word in VOCABULARY):
        return True
    called = text.partition("(")[0]
    if not scores or called not in ("range", "enumerate"):
        return False
    name = scores[0]
    if called == "range":
        return any(
            f"{name}.{size}" in text for size in ("shape[-1]", "shape[1]", "size(-1)", "size(1)")
        )
    return text.startswith((f"enumerate({name}[0]", f"enumerate({name}[i]"))


def _loop_fills_missing_cache(module: Module, method: ast.FunctionDef, loop: Iterated) -> bool:
    """Does a loop fill what its own condition asks for: `if self.mask is None: self.mask = ...`?"""
    kept = _assigned_names(method)
    tests = [one.test for one in module.parents(loop.iter) if isinstance(one, ast.If)]
    return any(ast.unparse(part) in kept for test in tests for part in ast.walk(test))


def _assigned_names(method: ast.FunctionDef) -> set[str]:
    """The names and attributes that a method gives a value: `ids`, `self.mask`."""
    return {
        ast.unparse(one)
        for one in ast.walk(method)
        if isinstance(one, ast.Name | ast.Attribute) and isinstance(one.ctx, ast.Store)
    }


def _decode_of_whole_row(method: ast.FunctionDef, ids: list[str]) -> ast.Call | None:
    """The call that decodes all ids of a row; None where it takes a part of them, also under their own name."""
    if _assigned_names(method).intersection(ids):
        return None
    for node in ast.walk(method):
        if (
            not isinstance(node, ast.Call)
            or not isinstance(node.func, ast.Attribute)
            or not node.args
        ):
            continue
        given = node.args[0]
        # `ids[0]` is a whole row; `ids[0][-10:]` and `ids[0, start:]` are parts of one.
        row = (
            given.value
            if isinstance(given, ast.Subscript) and _may_be_single_index(given.slice)
            else given
        )
        is_whole = isinstance(row, ast.Name) and [row.id] == ids
        if node.func.attr in DECODES and is_whole:
            return node
    return None


def _may_be_single_index(index: ast.expr) -> bool:
    """Is an index one number, or a name that may be one?"""
    return isinstance(index, ast.Constant | ast.Name)
