"""Turn markers are added as plain tokens, so decoding does not remove them.

## What it does
Inspects `tokenizer.add_tokens` with turn markers (`<|im_end|>`, `<|user|>`, `<end_of_turn>`) that are not marked as
special: no `special_tokens=True`, no `AddedToken(..., special=True)`, and no `add_special_tokens` that names them too.
It does not report tokens of tools or of thinking (`<tool_call>`, `<think>`), which answers may show.

## Why it is bad
`skip_special_tokens=True` only removes special tokens, so every answer shows the markers as text. The one that is set
as `eos_token` becomes special only when the tokenizer is loaded again. Plain tokens are also normalized, and a collator
or server that masks special tokens does not know them.

## Example
```python
from transformers import AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("meta-llama/Llama-3.2-3B")
tokenizer.add_tokens(["<|im_start|>", "<|im_end|>"])
tokenizer.eos_token = "<|im_end|>"
```

## Use instead
```python
from transformers import AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("meta-llama/Llama-3.2-3B")
tokenizer.add_tokens(["<|im_start|>", "<|im_end|>"], special_tokens=True)
tokenizer.eos_token = "<|im_end|>"
```

## Fix safety
Safe for a new training: ids and embedding stay the same. For a saved tokenizer, set `"special": true` for these tokens
in tokenizer.json and in `added_tokens_decoder` of tokenizer_config.json.

## References
- huggingface/transformers documentation, `add_tokens`
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
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

TURN_MARK = re.compile(
    r"<\|?/?(?:im_(?:start|end|sep)|(?:start|end)_of_(?:turn|role)|(?:start|end)_header_id|(?:start|end)_of_text|"
    r"eot(?:_id)?|eom(?:_id)?|end_of_(?:turn|message|text)|endofturn|end(?:oftext)?|user|assistant|system|human|bot|"
    r"endofuser|endofassistant|turn)\|?>|\[/?INST\]",
    re.I,
)
ADDED_TOKEN = ("transformers.AddedToken", "tokenizers.AddedToken", "*.AddedToken")


def _calls_that_add_tokens(module: Module) -> Iterator[Call]:
    """Calls that add tokens to a tokenizer."""
    for call in module.methods("add_tokens"):
        if call.receiver is not None and "tokenizer" in module.flow.types(call.receiver):
            yield call


class TurnMarksAddedAsPlainTokens(SourceRule):
    code = "SRC282"
    fault = Fault.SPECIAL_FLAG_OF_TOKENS_WRONG
    symptoms = ("garbage-output",)
    severity = "warning"
    looks_at = CodePlaces("tokens that are added to a tokenizer", _calls_that_add_tokens)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        for call in _calls_that_add_tokens(module):
            special = call.argument(1, "special_tokens")
            if call.open or (special is not None and module.flow.value(special) is not False):
                continue
            marks = [
                mark
                for mark in _plain_marks(module, call)
                if not _is_named_as_special(module, mark)
            ]
            if marks:
                shown = ", ".join(marks[:3])
                yield self.finding(
                    f"{shown} {'is' if len(marks) == 1 else 'are'} added as plain tokens, so answers show them:"
                    " skip_special_tokens=True only removes special tokens (the eos_token becomes special when the"
                    " tokenizer is loaded again)",
                    'pass special_tokens=True to add_tokens; in a tokenizer that is already saved, set "special": true'
                    " for these tokens in tokenizer.json and tokenizer_config.json",
                    cases=[case_of_node(module, call.node)],
                )


def _plain_marks(module: Module, call: Call) -> Iterator[str]:
    """The marks of turns among the tokens of a call that do not say that they are special."""
    new_tokens_argument = call.argument(0, "new_tokens")
    for node in (
        _tokens_given(module, new_tokens_argument) if new_tokens_argument is not None else ()
    ):
        if isinstance(node, ast.Call):
            made = module.flow.call(node)
            special = made.keywords.get("special")
            if not made.named(*ADDED_TOKEN) or made.open or module.flow.value(special) is True:
                continue
            node = made.argument(0, "content") or node
        text = module.flow.value(node)
        if isinstance(text, str) and TURN_MARK.fullmatch(text):
            yield text


def _tokens_given(module: Module, expression: ast.expr) -> Iterator[ast.expr]:
    """The tokens of a list that is given, or the one that is."""
    for origin in module.flow.origins(expression):
        node = origin.node
        if isinstance(node, ast.List | ast.Tuple | ast.Set):
            yield from node.elts
        elif isinstance(node, ast.expr):
            yield node


def _is_named_as_special(module: Module, mark: str) -> bool:
    """Is a token also named where special tokens are added or listed?"""
    for call in module.methods("add_special_tokens"):
        if mark in ast.unparse(call.node):
            return True
    listed = [
        call.keywords[name]
        for call in module.all_calls
        for name in ("additional_special_tokens", "extra_special_tokens")
        if name in call.keywords
    ]
    listed += [
        node.value
        for node in module.nodes(ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Attribute) and target.attr == "additional_special_tokens"
    ]
    return any(_may_list_mark(module, node, mark) for node in listed)


def _may_list_mark(module: Module, node: ast.expr, mark: str) -> bool:
    """May a list of tokens hold this one? One that is not known may."""
    value = module.flow.value(node)
    return not isinstance(value, list | tuple) or mark in value
