"""Text that the chat template rendered is tokenized again, with special tokens added a second time.

## What it does
It follows the text that `apply_chat_template(..., tokenize=False)` returns into a call of a tokenizer that does not say
`add_special_tokens=False`. It is silent where the model's name says that its tokenizer adds none (Qwen, Phi-3, ...),
and a note without a fix where its template is known to write no BOS (TinyLlama, Zephyr).

## Why it is bad
Most templates write BOS, and the tokenizer writes it again: training or serving sees two. One report lost 6 points.

## Example
```python
from transformers import AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("meta-llama/Llama-3.1-8B-Instruct")
text = tokenizer.apply_chat_template([{"role": "user", "content": "Hi"}], tokenize=False)
ids = tokenizer(text, return_tensors="pt")
```

## Use instead
```python
from transformers import AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("meta-llama/Llama-3.1-8B-Instruct")
text = tokenizer.apply_chat_template([{"role": "user", "content": "Hi"}], tokenize=False)
ids = tokenizer(text, return_tensors="pt", add_special_tokens=False)
```

## Fix safety
Safe where the template writes the special tokens that the model wants, as nearly all do. Where the
tokenizer adds none, nothing changes.

## References
- huggingface/trl#1400, OpenRLHF/OpenRLHF#393, vllm-project/vllm#2012, LiveCodeBench/LiveCodeBench#146
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.families import adds_bos, adds_nothing, template_writes_no_bos
from truetune.checks.source.places import at, fix
from truetune.source.calls import Call
from truetune.source.edits import set_keyword
from truetune.source.module import Module

WITH_SPECIALS = ("encode", "encode_plus", "batch_encode_plus")


class RenderedTextTokenizedAgain(SourceRule):
    code = "TT704"
    severity = "warning"

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        for call in module.all_calls:
            text = call.argument(0, "text")
            if text is None or not _tokenizes(module, call) or not call.lacks("add_special_tokens"):
                continue
            rendered = next(_rendered(module, text), None)
            tokenizer = call.receiver if call.method in WITH_SPECIALS else call.node.func
            if rendered is None or adds_nothing(module, tokenizer):
                continue
            bare = template_writes_no_bos(module, tokenizer)
            certain = not bare and adds_bos(module, tokenizer) is not False
            yield self.finding(
                "text rendered by apply_chat_template is tokenized with special tokens added: "
                + (
                    "this model's template writes no BOS, others do"
                    if bare
                    else "a second BOS if the template writes one"
                ),
                "let apply_chat_template tokenize"
                if bare
                else "give add_special_tokens=False to the tokenizer here, or let apply_chat_template tokenize",
                severity=self.severity if certain else "info",
                evidence=[f"rendered in line {module.place(rendered)[0]}; most templates write the special tokens"],
                cases=[at(module, call.node), at(module, rendered)],
                fix=None if bare else fix(module, set_keyword(module, call, "add_special_tokens", "False")),
            )


def _tokenizes(module: Module, call: Call) -> bool:
    if call.method in WITH_SPECIALS:
        return "tokenizer" in module.flow.kinds(call.receiver)
    return "tokenizer" in module.flow.kinds(call.node.func)


def _rendered(module: Module, text: ast.expr) -> Iterator[ast.Call]:
    """The calls of apply_chat_template whose text this may be, alone or as the elements of a list."""
    for origin in module.flow.origins(text):
        node = origin.node
        parts = node.elts if isinstance(node, ast.List) else [node.elt] if isinstance(node, ast.ListComp) else [node]
        for part in parts:
            for source in module.flow.origins(part):
                made = source.node
                if isinstance(made, ast.Call) and module.flow.kinds(made) == {"chat"} and not source.path:
                    if module.flow.value(module.flow.call(made).keywords.get("tokenize")) is False:
                        yield made
