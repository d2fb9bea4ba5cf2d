"""Says whether the tokenizer of a script puts a BOS before each text.

How it works: files answer first, where the folder that is named is on this machine. Then the name
does: that of a published model, that of a training beside the script which wrote the folder, or
that of a published family in the folders of a path (`runs/llama31-quiz/merged`), the nearest first.
"""

from __future__ import annotations

import ast
from pathlib import PurePosixPath

from truetune.checks.source.evidence.double_bos import family_of_base_model_trained_into_folder
from truetune.checks.source.evidence.shared_vocabularies import vocabulary_group
from truetune.checks.source.evidence.tokenizer_facts_of_published_models import (
    family_named_in_derivative,
    family_of_model,
    likely_model_names,
)
from truetune.errors import TruetuneError
from truetune.render.find_tokenizer_folder import find_tokenizer_folder
from truetune.render.tokenizer import load_tokenizer
from truetune.source.parsed_source_file import Module

BEGIN_WITH_BOS = ("Llama 2", "Llama 3", "Mistral", "Gemma", "Gemma 3")
"""Vocabularies whose tokenizers put a BOS before each text, by their tokenizer_config.json"""


def adds_bos_to_each_text(module: Module, tokenizer: ast.expr | None) -> bool:
    """Does the tokenizer put a BOS before each text, whichever of its possible models it is of?

    Args:
        module: The file.
        tokenizer: What holds the tokenizer there.

    Returns:
        Whether it does; False where that is not known.
    """
    names = likely_model_names(module, tokenizer)
    return bool(names) and all(_is_bos_added(module, name) for name in names)


def _is_bos_added(module: Module, name: str) -> bool:
    """Does the tokenizer of one name add a BOS?"""
    of_files = _is_bos_added_by_files(name)
    if of_files is not None:
        return of_files
    known = family_of_base_model_trained_into_folder(module, name) or family_of_model(name)
    known = known or family_named_in_derivative(name)
    if known is not None:
        return bool(known.adds_bos)
    if vocabulary_group(name) in BEGIN_WITH_BOS:
        return True
    # `owner/model` is a name on the hub: what its owner is called says nothing of the model.
    folders = PurePosixPath(name).parents if name.count("/") > 1 or name.startswith(".") else ()
    families = (family_named_in_derivative(folder.name) for folder in folders)
    nearest = next((one for one in families if one is not None), None)
    return nearest is not None and bool(nearest.adds_bos)


def _is_bos_added_by_files(name: str) -> bool | None:
    """Whether the tokenizer in a folder of this machine adds a BOS; None where there is none."""
    try:
        folder = find_tokenizer_folder(name)
        if not (folder / "tokenizer.json").is_file():
            return None
        tokenizer = load_tokenizer(str(folder))
    except (TruetuneError, OSError, ValueError):
        return None
    bos = tokenizer.special.get("bos")
    first = tokenizer.backend.encode("A", add_special_tokens=True).ids[:1]
    return bos is not None and first == [bos.id]
