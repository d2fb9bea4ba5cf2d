"""The tiers of the tests: `pytest -m fast`, `pytest -m "not slow"`, `pytest` for all.

- `fast` needs neither torch nor anything that is fetched: `pip install -e '.[test]'` is enough. FAST lists its modules.
- `slow` trains a model, or starts many processes; such tests are marked where they stand.
- `real` is every other test: real tokenizers, real trainers, small models.

A fast test that imports torch or asks for a part fails, here and in the whole suite alike: `forbid_heavy` makes both
impossible while it runs. Trade-off: a program that a fast test starts may import torch unseen, where it is installed.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NoReturn

import pytest

from tests import parts

TESTS = Path(__file__).parent
HEAVY = ("torch", "transformers", "trl", "peft", "accelerate", "datasets", "safetensors")
"""Packages of `.[train]` that `.[test]` lacks."""
FAST: tuple[str, ...] = ()
"""Folders and modules of the fast tier, from `tests/`."""


def is_fast(path: Path) -> bool:
    """Is this module of the fast tier?"""
    relative = path.relative_to(TESTS).as_posix()
    return any(relative == fast or relative.startswith(f"{fast}/") for fast in FAST)


def leads_to_fast(path: Path) -> bool:
    """Is this module or folder of the fast tier, or does it hold some of it?"""
    relative = path.relative_to(TESTS).as_posix()
    return is_fast(path) or relative == "." or any(f.startswith(f"{relative}/") for f in FAST)


def forbid_heavy(patch: pytest.MonkeyPatch) -> None:
    """Make heavy packages unimportable and parts unavailable until `patch` is undone."""

    def refuse(*asked: object) -> NoReturn:
        raise AssertionError(f"a test of the fast tier asks for parts: {asked}; see tests/tiers.py")

    for name in HEAVY:
        # Python refuses to import what stands there as None, also where it was imported before.
        patch.setitem(sys.modules, name, None)
    patch.setattr(parts, "_attempt", refuse)
