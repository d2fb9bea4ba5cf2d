"""Finds which arguments trainers no longer take, and which names a package no longer exports, by
release.

Read from `signatures.json`, which `python -m tests.settings.trainer_signatures` writes from the packages' own sources.
Only some releases are in it, so that of a change the last release before and the first after are known, and nothing is
said in between.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from truetune.parsing.input_limits import RESULT
from truetune.parsing.parse_json_within_limits import parse_json
from truetune.settings.release_windows_of_removed_names import RemovalWindow
from truetune.settings.stacks.known_keys import RENAMED_KEYS
from truetune.settings.stacks.read_trainer_arguments import METHOD_OF_CLASS, class_defaults

ANY_ARGUMENTS = "**"
"""In a signature: arguments of any name"""


class RemovedArgument(NamedTuple):
    """An argument of a trainer that newer releases refuse."""

    name: str
    taken: RemovalWindow
    instead: str | None
    """What says the same today: `processing_class=...`, `SFTConfig(max_length=...)`; None where nothing does"""
    renamed: str | None
    """The argument's new name, where the trainer still takes it"""


class RemovedExport(NamedTuple):
    """A name that a package exported, and exports no longer."""

    taken: RemovalWindow
    home: str | None
    """The module that exports it today"""


@cache
def _recorded_signatures() -> Mapping[str, Mapping[str, Any]]:
    """The recorded signatures of trainers, by package and release."""
    raw: Mapping[str, Mapping[str, Any]] = parse_json(
        files(__package__).joinpath("signatures.json").read_bytes(), RESULT
    )
    return raw


def find_removed_argument(package: str, trainer: str, name: str) -> RemovedArgument | None:
    """What became of an argument of a trainer's constructor.

    Args:
        package: `trl` or `transformers`.
        trainer: Name of the class, `SFTTrainer`.
        name: The argument.

    Returns:
        None where the newest release takes it or has no such trainer, and where no release took it.
    """
    history = _recorded_signatures()[package]["trainers"].get(trainer, ())
    signatures: list[list[str] | None] = [takes for _, takes in history]
    newest = signatures[-1] if signatures else None
    if newest is None or {name, ANY_ARGUMENTS} & {*newest}:
        return None
    after = max(
        (number for number, takes in enumerate(signatures, 1) if takes and name in takes),
        default=None,
    )
    if after is None:
        return None
    gone = history[after][0]
    releases: list[str] = _recorded_signatures()[package]["releases"]
    return RemovedArgument(
        name,
        RemovalWindow(releases[releases.index(gone) - 1], gone),
        *_replacement_and_new_name(trainer, name, newest),
    )


def _replacement_and_new_name(
    trainer: str, name: str, takes: list[str]
) -> tuple[str | None, str | None]:
    """What to write, and the argument's new name where it only changed its name."""
    new_name = RENAMED_KEYS["transformers"].get(name) or name
    if new_name in takes:
        return f"{new_name}=...", new_name
    arguments = (
        f"{trainer.removesuffix('Trainer')}Config" if trainer != "Trainer" else "TrainingArguments"
    )
    arguments = "Seq2SeqTrainingArguments" if trainer == "Seq2SeqTrainer" else arguments
    known = class_defaults(arguments) if arguments in METHOD_OF_CLASS else {}
    key = next((key for key in (name, RENAMED_KEYS["trl"].get(name)) if key in known), None)
    return (f"{arguments}({key}=...)" if key else None), None


def find_removed_export(package: str, name: str) -> RemovedExport | None:
    """A name that a package exports no longer; None for any other name."""
    entry = _recorded_signatures().get(package, {}).get("gone", {}).get(name)
    return None if entry is None else RemovedExport(RemovalWindow(entry[0], entry[1]), entry[2])
