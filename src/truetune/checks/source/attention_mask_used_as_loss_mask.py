"""Tokens are taken out of the attention mask to keep them out of the loss.

## What it does
Looks for a part of `attention_mask` that is set to 0 by position (`attention_mask[:, :prompt_length] = 0`).

## Why it is bad
The attention mask decides what the model sees, not what counts in the loss. The answer is trained without its prompt,
and the prompt stays in the loss.

## Example
```python
from transformers import AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("model")
batch = tokenizer(["Q: 1+1? A: 2"], return_tensors="pt")
prompt_length = 6
batch["attention_mask"][:, :prompt_length] = 0
```

## Use instead
```python
from transformers import AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("model")
batch = tokenizer(["Q: 1+1? A: 2"], return_tensors="pt")
prompt_length = 6
batch["labels"] = batch["input_ids"].clone()
batch["labels"][:, :prompt_length] = -100
```

## Fix safety
There is no automatic fix, because the labels must exist first. If you zero padding by position, the mask is right as it
is.

## References
- huggingface/transformers: the glossary's "attention mask"; `labels` set to -100 are ignored
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


def _attention_mask_places(module: Module) -> Iterator[ast.AST]:
    """The attention masks of rows, and what is written into one."""
    for row in module.nodes(ast.Dict):
        yield from (
            key
            for key in row.keys
            if isinstance(key, ast.Constant) and key.value == "attention_mask"
        )
    for node in module.nodes(ast.Assign):
        target = node.targets[0]
        if isinstance(target, ast.Subscript) and _is_attention_mask(target.value):
            yield node


class AttentionMaskUsedAsLossMask(SourceRule):
    code = "SRC057"
    fault = Fault.ATTENTION_MASK_WRONG
    symptoms = ("loss-does-not-fall", "nothing-is-learned")
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    looks_at = CodePlaces("attention masks that are written", _attention_mask_places)

    def findings(self) -> Iterator[Finding]:
        """Findings on tokens that are taken out of the attention mask to keep them out of the loss."""
        module = self.subject
        for row in module.nodes(ast.Dict):
            for key, value in zip(row.keys, row.values, strict=True):
                is_mask = isinstance(key, ast.Constant) and key.value == "attention_mask"
                if is_mask and _is_zeros_for_prompt(value):
                    yield self._finding_on_hidden_prompt(value)
        for node in module.nodes(ast.Assign):
            if _zeroes_prompt(module, node):
                yield self._finding_on_hidden_prompt(node)

    def _finding_on_hidden_prompt(self, node: ast.AST) -> Finding:
        """The finding on a prompt that is taken out of the attention mask."""
        return self.finding(
            "the attention mask is 0 over the prompt: the model can't see the prompt, and the loss still includes it",
            "set the labels of the prompt to -100, and do not change the attention mask",
            cases=[case_of_node(self.subject, node)],
        )


def _zeroes_prompt(module: Module, node: ast.Assign) -> bool:
    """Does the assignment hide the prompt: `attention_mask[:prompt_length] = 0`, `mask[i,
    :len(prompt)] = [0] * len(prompt)`?
    """
    target = node.targets[0]
    if not isinstance(target, ast.Subscript) or not _is_attention_mask(target.value):
        return False
    is_zeros = ast.unparse(node.value).startswith("[0] * ")
    if module.flow.value(node.value) not in (0, False) and not is_zeros:
        return False
    parts = target.slice.elts if isinstance(target.slice, ast.Tuple) else [target.slice]
    last = parts[-1]
    if not isinstance(last, ast.Slice) or last.lower is not None or last.upper is None:
        return False
    # The first tokens of a row padded on the left are pads, which a mask hides rightly: only a prompt counts.
    return "prompt" in ast.unparse(last).lower() and not _is_copy_given_to_no_model(
        module, target.value
    )


def _is_copy_given_to_no_model(module: Module, mask: ast.expr) -> bool:
    """Is it a copy that the file gives to no model? Pooling leaves prompts out by such a mask."""
    if not isinstance(mask, ast.Name):
        return False
    origins = [origin.node for origin in module.flow.origins(mask)]
    is_copy = any(
        isinstance(one, ast.Call) and module.flow.call(one).method in ("clone", "copy")
        for one in origins
    )
    function = next((one for one in module.parents(mask) if isinstance(one, ast.FunctionDef)), None)
    scope = module.tree if function is None else function
    return is_copy and not any(
        _is_passed_as_attention_mask(node, mask.id) for node in ast.walk(scope)
    )


def _is_passed_as_attention_mask(node: ast.AST, name: str) -> bool:
    """Is a mask of that name given as `attention_mask` to a call, or put into a row?"""
    if isinstance(node, ast.keyword):
        return node.arg == "attention_mask" and ast.unparse(node.value) == name
    if isinstance(node, ast.Dict):
        return any(ast.unparse(value) == name for value in node.values)
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
        return ast.unparse(node.value) == name
    return False


def _is_zeros_for_prompt(value: ast.expr) -> bool:
    """Is it `[0] * len(prompt) + ...`, so that the prompt is hidden?"""
    text = ast.unparse(value)
    return (
        isinstance(value, ast.BinOp)
        and text.startswith("[0] * len(")
        and "prompt" in text.partition("+")[0].lower()
    )


def _is_attention_mask(node: ast.expr) -> bool:
    """Is it a name, an attribute or a column of an attention mask?"""
    name = (
        node.slice.value
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant)
        else None
    )
    return name == "attention_mask" or ast.unparse(node).split(".")[-1] in (
        "attention_mask",
        "attn_mask",
    )
