"""Added tokens: a tokenizer folder that holds them, so that encoding, training and serving all see the same ids."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import tokenizers

from truetune.data.atomic import write_atomically
from truetune.render.tokenizer import load
from truetune.render.tokenizer_folder import files_of, read_json
from truetune.spec.run import RunSpec

OWNER = "truetune-work.json"
MARK = json.dumps({"truetune": "a tokenizer with added tokens", "format": 1}).encode()
"""What marks the folder as ours"""


def is_our_tokenizer(folder: Path) -> bool:
    """Is this a folder that `extended` wrote, and are its files no links to others?"""
    if folder.is_symlink() or not folder.is_dir():
        return False
    if not any(folder.iterdir()):
        return True
    try:
        ours = (folder / OWNER).read_bytes() == MARK
    except OSError:
        return False
    return ours and not any(path.is_symlink() for path in folder.rglob("*"))


def extended(spec: RunSpec, folder: Path) -> RunSpec:
    """The spec with a tokenizer that holds `training.added_tokens`, written to `folder` where it lacks any.

    They are ordinary words of one token, not control tokens, so contents may hold them. Raises TokenizerError.
    """
    if not spec.training.added_tokens or spec.tokenizer is None:
        return spec
    tokenizer = load(spec.tokenizer, model=spec.model)
    new = [
        token
        for token in spec.training.added_tokens
        if tokenizer.backend.token_to_id(token) is None
    ]
    if not new:
        return spec
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / OWNER, MARK)
    for path in files_of(tokenizer.folder, folder):
        target = folder / path.relative_to(tokenizer.folder)
        target.parent.mkdir(exist_ok=True)
        shutil.copyfile(path, target)
    added = [tokenizers.AddedToken(token, normalized=False) for token in new]
    tokenizer.backend.add_tokens(added)
    write_atomically(folder / "tokenizer.json", tokenizer.backend.to_str().encode())
    config = read_json(folder / "tokenizer_config.json") or {}
    if "added_tokens_decoder" in config:
        for token in added:
            config["added_tokens_decoder"][str(tokenizer.backend.token_to_id(token.content))] = {
                "content": token.content, "lstrip": False, "normalized": False, "rstrip": False,
                "single_word": False, "special": False,
            }  # fmt: skip
        write_atomically(
            folder / "tokenizer_config.json",
            json.dumps(config, ensure_ascii=False, indent=2).encode(),
        )
    return spec.model_copy(update={"tokenizer": str(folder), "model": spec.model or spec.tokenizer})
