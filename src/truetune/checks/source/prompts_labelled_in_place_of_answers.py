"""The label mask is inverted: the answer is set to -100, and the prompt is trained on.

## What it does
Inspects labels that are joined from parts, `prompt_ids + [-100] * len(answer_ids)`, and slices of labels that are set
to -100 from the end of the prompt on, `labels[prompt_len:] = -100`. It fires if the names, or the fields that the parts
are encoded from, say that the prompt keeps its labels and the answer is masked. A -100 after prompt and answer is
padding and not reported.

## Why it is bad
The model learns to write prompts. The loss falls as usual, since prompts are alike, but the answers do not change.

## Example
```python
from datasets import load_dataset
from transformers import AutoTokenizer

tok = AutoTokenizer.from_pretrained("model")


def encode(row):
    prompt = tok(row["question"])["input_ids"]
    answer = tok(row["answer"])["input_ids"]
    return {"input_ids": prompt + answer, "labels": prompt + [-100] * len(answer)}


rows = load_dataset("json", data_files="rows.jsonl", split="train").map(encode)
```

## Use instead
```python
from datasets import load_dataset
from transformers import AutoTokenizer

tok = AutoTokenizer.from_pretrained("model")


def encode(row):
    prompt = tok(row["question"])["input_ids"]
    answer = tok(row["answer"])["input_ids"]
    return {"input_ids": prompt + answer, "labels": [-100] * len(prompt) + answer}


rows = load_dataset("json", data_files="rows.jsonl", split="train").map(encode)
```

## Fix safety
Safe, but the model must be trained again. To check, decode the labels of one row that are not -100: they must be the
answer.

## References
- torch.nn.CrossEntropyLoss, `ignore_index`: -100 takes no part in the loss
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
from truetune.checks.source.evidence.hand_masked_labels import label_writers_and_values
from truetune.source.parsed_source_file import Module

IGNORED = -100
"""The label that the cross-entropy of torch leaves out by default"""
# `input` is neither: it names the prompt as well as the ids of the whole row.
PROMPT = re.compile(r"prompt|question|instruction|query|source|context|user|prefix", re.I)
ANSWER = re.compile(
    r"answer|response|completion|output|target|reply|chosen|assistant|solution|suffix", re.I
)
MAX_PARTS = 12
"""Parts of one sum that are read. Chosen, not measured: BOS, system, turns and EOS are six"""
MAX_STEPS = 3
"""Names and cuts between labels and their sum"""


def _label_sums_and_slice_assignments(module: Module) -> Iterator[ast.expr]:
    """Labels that are a sum of parts, and slices of labels that are set."""
    for _, value in label_writers_and_values(module):
        whole = _sum_that_labels_are(module, value)
        if whole is not None:
            yield whole
    for node in module.nodes(ast.Assign):
        for target in node.targets:
            if isinstance(target, ast.Subscript) and "label" in ast.unparse(target.value).lower():
                yield target


class PromptsLabelledInPlaceOfAnswers(SourceRule):
    code = "SRC287"
    fault = Fault.ANSWERS_MISSING_FROM_LOSS
    symptoms = ("nothing-is-learned", "garbage-output")
    severity = "error"
    looks_at = CodePlaces("labels made of parts", _label_sums_and_slice_assignments)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        seen: set[ast.AST] = set()
        for node in _label_sums_and_slice_assignments(module):
            if node in seen:
                continue
            seen.add(node)
            is_turned = (
                _masks_everything_after_prompt(module, node)
                if isinstance(node, ast.Subscript)
                else _keeps_prompt_and_masks_answer(module, node)
            )
            if is_turned:
                yield self.finding(
                    "the labels keep the prompt and set the answer to -100: the model learns to write prompts, not"
                    " answers",
                    "mask the prompt: `labels = [-100] * len(prompt) + answer`, or"
                    " `labels[: len(prompt)] = [-100] * len(prompt)`",
                    cases=[case_of_node(module, node)],
                )


def _sum_that_labels_are(module: Module, value: ast.expr) -> ast.BinOp | None:
    """The sum that labels are, through a name and a cut (`(a + b)[:limit]`)."""
    for _ in range(MAX_STEPS):
        if isinstance(value, ast.BinOp):
            return value if isinstance(value.op, ast.Add) else None
        if isinstance(value, ast.Subscript) and isinstance(value.slice, ast.Slice):
            value = value.value
            continue
        origins = module.flow.origins(value)
        if len(origins) != 1 or origins[0].path or not isinstance(origins[0].node, ast.expr):
            return None
        value = origins[0].node
    return None


def _summands_in_order(node: ast.expr) -> list[ast.expr]:
    """The parts of a sum, from left to right."""
    nodes: list[ast.expr] = []
    while isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add) and len(nodes) < MAX_PARTS:
        nodes.insert(0, node.right)
        node = node.left
    return [node, *nodes]


def _keeps_prompt_and_masks_answer(module: Module, whole: ast.expr) -> bool:
    """Is the first part the prompt, and each other part a -100 for each token of the answer?"""
    first, *others = _summands_in_order(whole)
    masked = [
        part for one in others if (part := _tokens_masked_by_ignore_index(module, one)) is not None
    ]
    if not masked or len(masked) < len(others):
        return False
    is_prompt = _is_named_by_words(module, first, PROMPT) and not _is_named_by_words(
        module, first, ANSWER
    )
    return is_prompt and all(
        _is_named_by_words(module, part, ANSWER) and not _is_named_by_words(module, part, PROMPT)
        for part in masked
    )


def _tokens_masked_by_ignore_index(module: Module, node: ast.expr) -> ast.expr | None:
    """x of `[-100] * len(x)`, either way round; None for anything else."""
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Mult):
        return None
    for marks, count in ((node.left, node.right), (node.right, node.left)):
        if not isinstance(count, ast.Call) or not _is_ignore_index(module, marks):
            continue
        if module.flow.name(count.func) == "len" and count.args:
            return count.args[0]
    return None


def _is_ignore_index(module: Module, node: ast.expr) -> bool:
    """Is it -100, or a list of one -100, also by the name of a constant?"""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return _is_ignore_index(module, node.left) or _is_ignore_index(module, node.right)
    if isinstance(node, (ast.List, ast.Tuple)):
        return len(node.elts) == 1 and _is_ignore_index(module, node.elts[0])
    return bool(module.flow.value(node) == IGNORED)


def _is_named_by_words(module: Module, node: ast.expr, words: re.Pattern[str]) -> bool:
    """Does its own name hold one of these words, or, where that says nothing, the names of what it was made of?"""
    own = _names_attributes_and_keys_in(node)
    if not PROMPT.search(own) and not ANSWER.search(own):
        own = " ".join(
            _names_attributes_and_keys_in(origin.node) for origin in module.flow.origins(node)
        )
    return bool(words.search(own))


def _names_attributes_and_keys_in(node: ast.AST) -> str:
    """Names, attributes and keys: the text of a prompt may hold any word."""
    found = []
    for part in ast.walk(node):
        if isinstance(part, ast.Name):
            found.append(part.id)
        elif isinstance(part, ast.Attribute):
            found.append(part.attr)
        elif isinstance(part, ast.Subscript) and isinstance(part.slice, ast.Constant):
            found.append(str(part.slice.value))
    return " ".join(found)


def _masks_everything_after_prompt(module: Module, target: ast.Subscript) -> bool:
    """Is all after the prompt set to -100: `labels[prompt_len:] = -100`, `labels[:, prompt_len:] = -100`?"""
    statement = module.statement(target)
    if not isinstance(statement, ast.Assign) or not _is_ignore_index(module, statement.value):
        return False
    cut = target.slice.elts[-1] if isinstance(target.slice, ast.Tuple) else target.slice
    if not isinstance(cut, ast.Slice) or cut.lower is None or cut.upper is not None or cut.step:
        return False
    text = ast.unparse(cut.lower)
    return bool(PROMPT.search(text)) and not _is_named_by_words(module, cut.lower, ANSWER)
