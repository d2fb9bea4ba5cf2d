"""What is known of published models by their names."""

from __future__ import annotations

import ast
import re
from functools import lru_cache
from pathlib import Path

from truetune.errors import TokenizerError
from truetune.parsing.json_reader import read_json
from truetune.parsing.limits import MODEL_FILE
from truetune.render.folder import locate
from truetune.source.module import Module

PLAIN = ("qwen", "deepseek", "gpt-oss", "gpt2", "phi-3", "phi-4", "smollm")
"""Families whose tokenizers add no special tokens by themselves: `encode("hello")` is the same with and without them
(read from the tokenizers of 14 of their releases)."""

WITH_BOS = ("llama", "mistral", "mixtral", "gemma", "ministral", "codellama", "vicuna")
"""Families whose tokenizers add BOS by themselves"""
OWN_FOLDER = re.compile(
    r"[./~]|(out|outputs?|results?|runs?|models?|checkpoints?|saves?|saved|merged|exp)[\w.-]*/", re.I
)
"""Beginnings of paths, which hub names of the form owner/name do not have"""
NO_BOS = ("tinyllama", "zephyr")
"""Families whose tokenizers add BOS and whose templates write none: rendered text wants it added"""


def template_writes_no_bos(module: Module, tokenizer: ast.expr | None) -> bool:
    """Is it known from the model's name that the template leaves BOS to the tokenizer?"""
    names = _names(module, tokenizer)
    return bool(names) and all(any(family in name.lower() for family in NO_BOS) for name in names)


def adds_bos(module: Module, tokenizer: ast.expr | None) -> bool | None:
    """Does this tokenizer add a BOS? False: its name is of no family that does. None: there is no name, or it is
    that of a folder."""
    names = _names(module, tokenizer)
    if not names or any(OWN_FOLDER.match(name) for name in names):
        return None
    return any(family in name.lower() for name in names for family in WITH_BOS)


def adds_nothing(module: Module, tokenizer: ast.expr | None) -> bool:
    """Is it known from the model's name that this tokenizer adds no BOS?"""
    names = _names(module, tokenizer) or [
        name
        for call in module.calls("*.from_pretrained", "trl.*Trainer")
        if isinstance(name := module.flow.value(call.argument(0, "model")), str) and "/" in name
    ]
    return bool(names) and all(any(family in name.lower() for family in PLAIN) for name in names)


def vocabulary(module: Module, tokenizer: ast.expr | None) -> frozenset[str]:
    """The tokens of the tokenizer that is loaded, where its folder is on this machine; else none."""
    found: frozenset[str] = frozenset()
    for name in _names(module, tokenizer):
        try:
            found |= _tokens_in(locate(name))
        except (TokenizerError, OSError, ValueError):
            continue
    return found


@lru_cache(maxsize=8)
def _tokens_in(folder: Path) -> frozenset[str]:
    whole = read_json(folder / "tokenizer.json", MODEL_FILE)
    if not isinstance(whole, dict):
        return frozenset()
    added = whole.get("added_tokens")
    model = whole.get("model")
    words = model.get("vocab") if isinstance(model, dict) else None
    names = [token.get("content") for token in added if isinstance(token, dict)] if isinstance(added, list) else []
    return frozenset((*map(str, names), *(words if isinstance(words, dict) else ())))


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
