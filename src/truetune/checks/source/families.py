"""What is known of published models by their names."""

from __future__ import annotations

import ast

from truetune.source.module import Module

PLAIN = ("qwen", "deepseek", "gpt-oss", "gpt2", "phi-3", "phi-4", "smollm")
"""Families whose tokenizers add no special tokens by themselves: `encode("hello")` is the same with and without them
(read from the tokenizers of 14 of their releases)."""

WITH_BOS = ("llama", "mistral", "mixtral", "gemma", "ministral", "codellama", "vicuna")
"""Families whose tokenizers add BOS by themselves"""
NO_BOS = ("tinyllama", "zephyr")
"""Families whose tokenizers add BOS and whose templates write none: rendered text wants it added"""


def template_writes_no_bos(module: Module, tokenizer: ast.expr | None) -> bool:
    """Is it known from the model's name that the template leaves BOS to the tokenizer?"""
    names = _names(module, tokenizer)
    return bool(names) and all(any(family in name.lower() for family in NO_BOS) for name in names)


def adds_bos(module: Module, tokenizer: ast.expr | None) -> bool | None:
    """Does this tokenizer add a BOS, by the model's name? None where no name says so."""
    names = _names(module, tokenizer)
    known = [any(family in name.lower() for family in WITH_BOS) for name in names]
    return True if any(known) else None


def adds_nothing(module: Module, tokenizer: ast.expr | None) -> bool:
    """Is it known from the model's name that this tokenizer adds no BOS?"""
    names = _names(module, tokenizer) or [
        name
        for call in module.calls("*.from_pretrained", "trl.*Trainer")
        if isinstance(name := module.flow.value(call.argument(0, "model")), str) and "/" in name
    ]
    return bool(names) and all(any(family in name.lower() for family in PLAIN) for name in names)


def _names(module: Module, tokenizer: ast.expr | None) -> list[str]:
    """The names that the tokenizer is loaded by."""
    found = []
    for origin in module.flow.origins(tokenizer) if tokenizer is not None else ():
        if isinstance(origin.node, ast.Call) and origin.path in ((), (1,)):
            call = module.flow.call(origin.node)
            given = call.argument(0, "pretrained_model_name_or_path") or call.keywords.get("model_name")
            name = module.flow.value(given)
            found += [name] if isinstance(name, str) and "/" in name else []
    return found
