"""The embedding is resized to the tokenizer's length although no token was added.

## What it does
Looks for `resize_token_embeddings(len(tokenizer))` without a comparison before it and without `pad_to_multiple_of`, in
a file that adds no token, for a model whose embedding is known to be longer than its tokenizer: Qwen, T5 and BLOOM by
name, other models with an encoder by their class.

## Why it is bad
Vocabularies are padded (Qwen: 151,936 rows for 151,669 tokens), and the call cuts those rows off. Engines that expect
the padded size reject the checkpoint, and an adapter no longer fits its base.

## Example
```python
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("Qwen/Qwen3-8B")
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen3-8B")
model.resize_token_embeddings(len(tokenizer))
```

## Use instead
```python
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("Qwen/Qwen3-8B")
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen3-8B")
if len(tokenizer) > model.get_input_embeddings().weight.shape[0]:
    model.resize_token_embeddings(len(tokenizer), pad_to_multiple_of=64)
```

## Fix safety
Safe if no token was added: the call is then not needed.

## References
- QwenLM/Qwen#553, huggingface/transformers#25729, huggingface/transformers#32852, huggingface/transformers#33325
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.examined_code_places import places_of_method_calls
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.generate_call_inputs import has_encoder_models_only
from truetune.checks.source.evidence.tokenizer_facts_of_published_models import (
    families_of_tokenizer,
)
from truetune.source.parsed_source_file import Module

TOKEN_ADDING_NAMES = (
    "add_special_tokens",
    "add_tokens",
    "additional_special_tokens",
    "extra_special_tokens",
    "setup_chat_format",
    "clone_chat_template",
    "smart_tokenizer",
    "PeftModel",
)
"""Signs that there may be more tokens than the model was made for"""


class EmbeddingShrunkByResize(SourceRule):
    code = "SRC046"
    fault = Fault.TOKEN_IDS_EXCEED_EMBEDDING
    symptoms = ("garbage-output",)
    severity = "warning"
    since = "0.1.0"
    looks_at = places_of_method_calls("calls of resize_token_embeddings", "resize_token_embeddings")

    def findings(self) -> Iterator[Finding]:
        """Findings on embeddings that are resized to the tokenizer's length though no token was added."""
        module = self.subject
        if any(_adds_tokens(part) for part in module.self_and_files_run_together):
            return
        for call in module.methods("resize_token_embeddings"):
            is_guarded = any(
                isinstance(node, (ast.If, ast.IfExp)) for node in module.parents(call.node)
            )
            # With a multiple, the embedding keeps padded rows; a condition may compare the two lengths.
            if is_guarded or not call.lacks("pad_to_multiple_of", 1):
                continue
            tokenizer = _tokenizer_of_len(module, call.argument(0, "new_num_tokens"))
            if tokenizer is not None and _is_embedding_longer(module, tokenizer):
                yield self.finding(
                    "the embedding is resized to len(tokenizer) although no token is added: its padding"
                    " rows are cut off, and engines may reject the checkpoint",
                    "delete the call, or put it under: if len(tokenizer) >"
                    " model.get_input_embeddings().weight.shape[0]",
                    cases=[case_of_node(module, call.node)],
                )


def _adds_tokens(module: Module) -> bool:
    """May a file add tokens? `add_special_tokens=` of a tokenizer's call adds none to the vocabulary."""
    text = module.text.replace("add_special_tokens=", "")
    return any(name in text for name in TOKEN_ADDING_NAMES)


def _tokenizer_of_len(module: Module, length: ast.expr | None) -> ast.expr | None:
    """The tokenizer whose length is taken: `tokenizer` of `len(tokenizer)`; None of any other length."""
    if not isinstance(length, ast.Call) or not length.args:
        return None
    is_len = module.flow.name(length.func) == "len"
    return length.args[0] if is_len and "tokenizer" in module.flow.types(length.args[0]) else None


def _is_embedding_longer(module: Module, tokenizer: ast.expr) -> bool:
    """Is the embedding longer than the tokenizer, in each of the models it may be of?"""
    known = families_of_tokenizer(module, tokenizer)
    if known and all(one is not None and one.spare_rows is not None for one in known):
        return all(one is not None and one.spare_rows for one in known)
    return has_encoder_models_only(module)
