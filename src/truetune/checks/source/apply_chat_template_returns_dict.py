"""The result of `apply_chat_template` is taken for a list of ids; since transformers 5 it is a dictionary.

## What it does
It follows results of `apply_chat_template` (tokenized, without `return_dict`) into `len`, slices, loops, list
arithmetic and `.shape`.

## Why it is bad
`len` of the dictionary is 2: a prompt mask of that length lets the whole prompt be learned, and nothing says so.

## Example
```python
from transformers import AutoTokenizer

tok = AutoTokenizer.from_pretrained("Qwen/Qwen3-0.6B")
prompt = tok.apply_chat_template([{"role": "user", "content": "Hi"}], add_generation_prompt=True)
labels = [-100] * len(prompt)
```

## Use instead
```python
from transformers import AutoTokenizer

tok = AutoTokenizer.from_pretrained("Qwen/Qwen3-0.6B")
prompt = tok.apply_chat_template([{"role": "user", "content": "Hi"}], add_generation_prompt=True, return_dict=False)
labels = [-100] * len(prompt)
```

## Fix safety
Safe: `return_dict=False` gives the ids, in transformers 4 too. There is no fix where the result is used as a dictionary
elsewhere.

## References
- huggingface/transformers#41626, huggingface/transformers#42567, huggingface/trl#4880
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.places import at, fix
from truetune.source.calls import Call
from truetune.source.edits import set_keyword
from truetune.source.module import Module

SILENT = ("len", "list", "tuple", "enumerate", "zip", "reversed")
OF_TENSORS = ("shape", "size", "tolist", "cpu", "numpy", "squeeze", "unsqueeze", "ndim")
OF_DICTIONARIES = ("input_ids", "attention_mask", "items", "keys", "get", "pop", "data")


class ApplyChatTemplateReturnsDict(SourceRule):
    code = "TT705"
    severity = "error"

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        calls = [call for call in module.methods("apply_chat_template") if _returns_dictionary(module, call)]
        if not calls or module.pins.before("transformers", "5.0.0"):
            return
        asked = module.pins.of("transformers")
        told = [] if asked else ["no file here says which release of transformers runs; before 5 it is a list of ids"]
        for call in calls:
            uses = list(_uses(module, call.node))
            silent = [node for node, how in uses if how == "silent"]
            loud = [node for node, how in uses if how == "loud"]
            if silent or loud:
                dictionary = any(how == "dictionary" for _, how in uses)
                yield self.finding(
                    "apply_chat_template returns a dictionary since transformers 5; here it is used as a list of ids"
                    if silent
                    else "apply_chat_template returns a dictionary since transformers 5; here it is used as a tensor",
                    'give return_dict=False, or take ["input_ids"] of the result',
                    severity="error" if silent else "warning",
                    evidence=["len() of it is 2, whatever the prompt" if silent else "this stops with an error", *told],
                    cases=[at(module, node) for node in (*silent, *loud)][:2] + [at(module, call.node)],
                    fix=None if dictionary else fix(module, set_keyword(module, call, "return_dict", "False")),
                )


def _returns_dictionary(module: Module, call: Call) -> bool:
    tokenize = call.keywords.get("tokenize")
    if not (call.lacks("return_dict") and (tokenize is None or module.flow.value(tokenize) is True)):
        return False
    return "tokenizer" in module.flow.kinds(call.receiver)  # a processor's gives text unless it is told otherwise


def _uses(module: Module, made: ast.Call) -> Iterator[tuple[ast.AST, str]]:
    """Each use of the result, and how it goes: silent (nonsense), loud (an error), dictionary (right)."""
    names = (
        name
        for name in module.nodes(ast.Name)
        if isinstance(name.ctx, ast.Load)
        and all(o.node is made and not o.path and not o.element for o in module.flow.origins(name))
    )
    for node in (made, *names):
        parent = module.scopes.parent.get(node)
        how = _how(module, node, parent)
        if how and parent is not None:
            yield parent, how


def _how(module: Module, node: ast.AST, parent: ast.AST | None) -> str:
    if isinstance(parent, ast.Call) and node in parent.args:
        return "silent" if module.flow.name(parent.func) in SILENT else ""
    if isinstance(parent, ast.Subscript) and parent.value is node:
        index = module.flow.value(parent.slice)
        if isinstance(index, str):
            return "dictionary"
        return (
            "silent" if isinstance(parent.slice, ast.Slice) else "loud" if isinstance(parent.slice, ast.Tuple) else ""
        )
    if isinstance(parent, ast.BinOp) and isinstance(parent.op, ast.Add):
        return "loud"
    if isinstance(parent, (ast.For, ast.comprehension)) and parent.iter is node:
        return "silent"
    if isinstance(parent, ast.Attribute):
        return "loud" if parent.attr in OF_TENSORS else "dictionary" if parent.attr in OF_DICTIONARIES else ""
    if isinstance(parent, ast.keyword) and parent.arg is None:
        return "dictionary"
    return "silent" if isinstance(parent, ast.Starred) else ""
