"""Added tokens: a tokenizer folder that holds them, so that encoding, training and serving all see the same ids."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import tokenizers

from truetune.data.atomic import write
from truetune.render.folder import files_of, read_json
from truetune.render.tokenizer import load
from truetune.spec.run import RunSpec


def extended(spec: RunSpec, folder: Path) -> RunSpec:
    """The spec with a tokenizer that holds `training.added_tokens`, written to `folder` where it lacks any.

    They are ordinary words of one token, not control tokens, so contents may hold them. Raises TokenizerError.
    """
    if not spec.training.added_tokens or spec.tokenizer is None:
        return spec
    tokenizer = load(spec.tokenizer, model=spec.model)
    new = [token for token in spec.training.added_tokens if tokenizer.backend.token_to_id(token) is None]
    if not new:
        return spec
    folder.mkdir(parents=True, exist_ok=True)
    for path in files_of(tokenizer.folder, folder):
        target = folder / path.relative_to(tokenizer.folder)
        target.parent.mkdir(exist_ok=True)
        shutil.copyfile(path, target)
    added = [tokenizers.AddedToken(token, normalized=False) for token in new]
    tokenizer.backend.add_tokens(added)
    write(folder / "tokenizer.json", tokenizer.backend.to_str().encode())
    config = read_json(folder / "tokenizer_config.json") or {}
    if "added_tokens_decoder" in config:
        for token in added:
            config["added_tokens_decoder"][str(tokenizer.backend.token_to_id(token.content))] = {
                "content": token.content, "lstrip": False, "normalized": False, "rstrip": False,
                "single_word": False, "special": False,
            }  # fmt: skip
        write(folder / "tokenizer_config.json", json.dumps(config, ensure_ascii=False, indent=2).encode())
    return spec.model_copy(update={"tokenizer": str(folder), "model": spec.model or spec.tokenizer})
