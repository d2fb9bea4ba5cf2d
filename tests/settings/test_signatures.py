"""What is recorded of trainers' constructors, against the packages that are installed, and the history in between."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator

import pytest

from truetune.settings.release_windows_of_removed_names import RemovalWindow
from truetune.settings.stacks.removed_arguments import (
    ANY_ARGUMENTS,
    _recorded_signatures,
    find_removed_argument,
    find_removed_export,
)


def newest(package: str) -> Iterator[tuple[str, list[str]]]:
    """The trainers of the newest release that is recorded."""
    for name, history in _recorded_signatures()[package]["trainers"].items():
        if history[-1][1] is not None:
            yield name, history[-1][1]


@pytest.mark.parametrize("package", ["transformers", "trl"])
def test_the_newest_record_is_what_the_package_takes(package: str) -> None:
    module = pytest.importorskip(package)
    if module.__version__ != _recorded_signatures()[package]["releases"][-1]:
        pytest.skip("another release than the newest one that is recorded")
    for name, takes in newest(package):
        parameters = inspect.signature(getattr(module, name).__init__).parameters
        assert [one for one in takes if one != ANY_ARGUMENTS] == [
            parameter.name
            for parameter in parameters.values()
            if parameter.name != "self" and parameter.kind != parameter.VAR_KEYWORD
        ], name


def test_names_that_are_gone_are_not_in_the_package() -> None:
    trl = pytest.importorskip("trl")
    if trl.__version__ != _recorded_signatures()["trl"]["releases"][-1]:
        pytest.skip("another release than the newest one that is recorded")
    for name, (_, _, home) in _recorded_signatures()["trl"]["gone"].items():
        assert not hasattr(trl, name), name
        if home is not None:
            assert hasattr(importlib.import_module(home), name), name


@pytest.mark.parametrize(
    ("package", "trainer", "name", "taken"),
    [
        ("transformers", "Trainer", "tokenizer", RemovalWindow("4.57.6", "5.0.0")),
        ("trl", "SFTTrainer", "tokenizer", RemovalWindow("0.15.2", "0.16.1")),
        ("trl", "SFTTrainer", "max_seq_length", RemovalWindow("0.12.2", "0.13.0")),
        ("trl", "DPOTrainer", "beta", RemovalWindow("0.12.2", "0.13.0")),
        ("trl", "DPOTrainer", "model_init", RemovalWindow("0.18.2", "0.19.1")),
        ("trl", "SFTTrainer", "train_dataset", None),
        ("trl", "SFTTrainer", "no_release_took_this", None),
        ("trl", "ORPOTrainer", "tokenizer", None),
        ("trl", "NoTrainer", "tokenizer", None),
    ],
)
def test_an_argument_is_gone_from_the_release_after_the_last_that_took_it(
    package: str, trainer: str, name: str, taken: RemovalWindow | None
) -> None:
    gone = find_removed_argument(package, trainer, name)
    assert (gone.taken if gone else None) == taken


def test_a_name_that_is_still_exported_is_not_gone() -> None:
    assert find_removed_export("trl", "SFTTrainer") is None
    assert find_removed_export("transformers", "AdamW") is None
