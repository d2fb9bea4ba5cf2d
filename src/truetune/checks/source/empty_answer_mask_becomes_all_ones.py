"""If the template marks no answer, the loss mask falls back to all tokens.

## What it does
Looks for a mask that becomes `[1] * n` if `any(mask)` is false (or its sum is 0), in code that uses
`return_assistant_tokens_mask`.

## Why it is bad
Most published templates have no `{% generation %}` tags: every row takes the fallback, and the model is also trained to
write system prompts and users' questions. The loss looks plausible.

## Example
```python
from transformers import AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("model")
encoded = tokenizer.apply_chat_template(rows, return_dict=True, return_assistant_tokens_mask=True)
mask = encoded["assistant_masks"]
if not any(mask):
    mask = [1] * len(mask)
```

## Use instead
```python
from transformers import AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("model")
encoded = tokenizer.apply_chat_template(rows, return_dict=True, return_assistant_tokens_mask=True)
mask = encoded["assistant_masks"]
if not any(mask):
    raise ValueError("the template marks no answer")
```

## Fix safety
There is no automatic fix: add the tags to the template, or get the mask from another source (`truetune encode` needs no
tags). The run then stops instead of training on the wrong tokens.

## References
- NVIDIA-NeMo/Megatron-Bridge#3359, NVIDIA-NeMo/Megatron-Bridge#3927, MervinPraison/PraisonAI#4358
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
from truetune.source.parsed_source_file import Module

EMPTY_MASK_TEST = re.compile(r"^not (any|sum)\(|(any|sum)\(.*\) == 0$|\.(any|sum)\(\)( == 0)?$")


def _answer_mask_places(module: Module) -> Iterator[ast.AST]:
    """Where the mask of the answers is asked for, or read."""
    yield from (
        node for node in module.nodes(ast.keyword) if node.arg == "return_assistant_tokens_mask"
    )
    yield from (node for node in module.nodes(ast.Constant) if node.value == "assistant_masks")


class EmptyAnswerMaskBecomesAllOnes(SourceRule):
    code = "SRC064"
    fault = Fault.GENERATION_TAGS_MISSING_OR_WRONG
    symptoms = ("loss-does-not-fall", "nothing-is-learned")
    severity = "error"
    since = "0.1.0"
    looks_at = CodePlaces("places that name the assistant's mask", _answer_mask_places)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        if (
            "return_assistant_tokens_mask" not in module.text
            and "assistant_masks" not in module.text
        ):
            return
        nodes: list[ast.If | ast.IfExp] = [*module.nodes(ast.If), *module.nodes(ast.IfExp)]
        for node in nodes:
            body: list[ast.stmt] | list[ast.expr]
            body = node.body if isinstance(node, ast.If) else [node.body, node.orelse]
            test = ast.unparse(node.test)
            tests = (
                EMPTY_MASK_TEST.search(test)
                if isinstance(node, ast.If)
                else re.search(r"\b(any|sum)\(", test)
            )
            made = next(
                (part for item in body for part in ast.walk(item) if _is_all_ones(part)), None
            )
            if tests and made is not None:
                yield self.finding(
                    "if the template marks no answer, all tokens count in the loss, including prompts",
                    "raise an error here instead: an empty mask means that the chat template has no"
                    " {% generation %} tags around the assistant's text; add them to the template",
                    cases=[case_of_node(module, made)],
                )


def _is_all_ones(node: ast.AST) -> bool:
    """Is it a mask of ones: `[1] * n` or `ones_like(...)`?"""
    if isinstance(node, ast.Call):
        return ast.unparse(node.func).endswith("ones_like")
    return (
        isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Mult)
        and ast.unparse(node.left) in ("[1]", "[True]")
    )
