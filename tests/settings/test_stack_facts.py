"""The written-down keys and defaults are those of the installed packages."""

from __future__ import annotations

import json

import pytest

from tests.settings.stack_facts import STACKS, facts
from truetune.settings.stacks.known_keys import DEPRECATED_KEYS, RENAMED_KEYS
from truetune.settings.stacks.known_keys import load_known_keys as written


@pytest.mark.parametrize("stack", STACKS)
def test_as_the_package_says(stack: str) -> None:
    package = pytest.importorskip(STACKS[stack][0])
    if package.__version__ != written(stack).release:
        pytest.skip(
            f"{STACKS[stack][0]} {package.__version__} is installed, not {written(stack).release}"
        )
    assert json.loads(json.dumps(facts(stack)["classes"])) == written(stack).classes


@pytest.mark.parametrize("stack", RENAMED_KEYS)
def test_old_names_are_old(stack: str) -> None:
    """A name of an earlier release is none of this one, unless it is still taken; what it is today is one."""
    classes = dict(written(stack).classes)
    if stack == "trl":
        classes |= written("transformers").classes
    every = {key for keys in classes.values() for key in keys}
    main = {key for name in (MAIN if stack == "trl" else classes) for key in classes[name]}
    assert RENAMED_KEYS[stack].keys() & main - DEPRECATED_KEYS == set()
    elsewhere = {"processing_class", "dtype", "fsdp_config.final_state_dict_type"}
    assert {
        now for now in RENAMED_KEYS[stack].values() if now is not None
    } - every - elsewhere == set()


MAIN = (
    "SFTConfig",
    "DPOConfig",
    "KTOConfig",
    "ModelConfig",
    "ScriptArguments",
    "TrainingArguments",
)
"""Of TRL; its experimental classes still have some old names"""
