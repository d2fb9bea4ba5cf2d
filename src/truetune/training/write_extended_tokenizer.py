"""Writes a tokenizer folder with added tokens, so that encoding, training and serving all see the
same ids.

The tokenizer is copied into the run's folder and the tokens are written into its files. The other way, adding them in
memory in each program, gives other ids as soon as one of them forgets it, or adds them in another order.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import tokenizers

from truetune.data.write_atomically import write_atomically
from truetune.render.find_tokenizer_folder import read_json, tokenizer_and_model_files
from truetune.render.tokenizer import load_tokenizer
from truetune.settings.run_spec import RunSpec

# A run may replace this folder only where it wrote it. The mark and the test for links keep a
# user's own folder of that name, and files behind a link, from being overwritten.
OWNER_FILE = "truetune-work.json"
OWNER_MARK = json.dumps({"truetune": "a tokenizer with added tokens", "format": 1}).encode()
"""What marks the folder as ours"""


def is_folder_of_extended_tokenizer(folder: Path) -> bool:
    """Is this a folder that `extend_tokenizer_and_give_settings` wrote, and are its files no links to others?"""
    if folder.is_symlink() or not folder.is_dir():
        return False
    # A killed run may have made the folder and not come to its mark.
    if not any(folder.iterdir()):
        return True
    try:
        ours = (folder / OWNER_FILE).read_bytes() == OWNER_MARK
    except OSError:
        return False
    return ours and not any(path.is_symlink() for path in folder.rglob("*"))


def extend_tokenizer_and_give_settings(spec: RunSpec, folder: Path) -> RunSpec:
    """Write the tokenizer with `training.added_tokens` to `folder` where it lacks any, and give the
    settings that use it.

    They are ordinary words of one token, not control tokens, so contents may hold them. Raises TokenizerError.
    """
    if not spec.training.added_tokens or spec.tokenizer is None:
        return spec
    tokenizer = load_tokenizer(spec.tokenizer, model=spec.model)
    new = [
        token
        for token in spec.training.added_tokens
        if tokenizer.backend.token_to_id(token) is None
    ]
    if not new:
        return spec
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / OWNER_FILE, OWNER_MARK)
    # Copied, not linked: the folder is saved with the run, and has to work on another machine.
    for path in tokenizer_and_model_files(tokenizer.folder, folder):
        target = folder / path.relative_to(tokenizer.folder)
        target.parent.mkdir(exist_ok=True)
        shutil.copyfile(path, target)
    # Not normalized: a normalizer (lower case, NFKC) would otherwise change the text before it is
    # looked up, and the token would never match.
    added = [tokenizers.AddedToken(token, normalized=False) for token in new]
    tokenizer.backend.add_tokens(added)
    write_atomically(folder / "tokenizer.json", tokenizer.backend.to_str().encode())
    config = read_json(folder / "tokenizer_config.json") or {}
    # transformers builds the slow half of its tokenizer from this table; without it the new tokens
    # are unknown to convert_tokens_to_ids although tokenizer.json has them.
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
