"""Tells whether another program reads a file of settings beside the stack's own, and which of its keys the stack does
not know.
"""

from __future__ import annotations

import re

from truetune.checks.config.evidence.setting_places_and_known_keys import (
    is_config_of_python_program,
    known_keys,
)
from truetune.settings.config import Config, RenamedKey, SettingLocation
from truetune.settings.stacks.read_trl_yaml import SCRIPT_ONLY_KEYS
from truetune.settings.stacks.registry import config_readers
from truetune.settings.suggest_spelling import find_misspelt_key

DATA_SET_LISTS = ("datasets", "test_datasets", "pretraining_dataset")
"""Keys of Axolotl whose tables have keys of their own"""
DATA_SET_KEYS = re.compile(rf"(?:{'|'.join(DATA_SET_LISTS)})\.\d+\.[^.]+")
MIN_FOREIGN_WORDS = 3
"""So many keys that resemble none of the stack's are no slips: another program has words of its own"""
MIN_FOREIGN_SHARE = 0.2
"""Of the keys. Files of scripts that hand TRL's classes on have 2 to 4 of their own in 30 to 40 (alignment-handbook,
SimPO); those of programs with arguments of their own have 7 in 25 and more (open-instruct)"""
GENERATION_WORDS = frozenset(
    (
        "predict_with_generate",
        "generation_max_length",
        "generation_num_beams",
        "generation_config",
        "sortish_sampler",
    )
)
"""What Seq2SeqTrainingArguments take more than TrainingArguments"""


def keys_of_another_program(config: Config) -> list[str]:
    """The keys that resemble none of the stack's, where they show that another program reads the file too.

    Axolotl is left out: no program but its own reads such a file, and it drops what it does not know.
    """
    if is_config_of_python_program(config) or config.stack in ("axolotl", "truetune"):
        return []
    names = known_keys(config)
    strange = [
        place.key for place in unknown_keys(config) if likely_meant_key(place, names) is None
    ]
    is_foreign = len(strange) >= MIN_FOREIGN_WORDS or bool(SCRIPT_ONLY_KEYS.intersection(strange))
    return strange if is_foreign else []


def keeps_stack_defaults(config: Config) -> bool:
    """Does what the file leaves out have the stack's default, as far as is known?

    A script with settings of its own may set it, unless it is known that the stack itself reads the file.
    """
    if (
        config.read_by
        or is_config_of_python_program(config)
        or config.stack in ("axolotl", "truetune")
    ):
        return True
    names = known_keys(config)
    return not config.own_keys and all(
        likely_meant_key(place, names) is not None for place in unknown_keys(config)
    )


def are_many_keys_of_another_program(config: Config) -> bool:
    """Are so many keys the words of another program that the others, old names too, are likely its own as well?"""
    return len(keys_of_another_program(config)) >= MIN_FOREIGN_SHARE * max(1, len(config.raw))


def unknown_keys(config: Config) -> list[SettingLocation]:
    """The keys that no release is known to take; those of Axolotl's data sets are read with their values elsewhere."""
    renamed = {one.place for one in config.renamed}
    return [
        place
        for place in config.unknown
        if place not in renamed
        and not (config.stack == "transformers" and place.key in GENERATION_WORDS)
        and not (config.stack == "axolotl" and DATA_SET_KEYS.fullmatch(place.key))
    ]


def describe_fate_of_unknown_key(config: Config) -> str:
    """What becomes of a key that the stack does not know, in words."""
    if is_config_of_python_program(config):
        return "the call stops at it"
    reader = config_readers().get(config.stack)
    if reader is not None:
        return reader.unknown_key
    # OpenRLHF has commands and no files of settings, so it is in no table of readers.
    return "OpenRLHF stops at it" if config.stack == "openrlhf" else "TrainingArguments stops at it"


def is_unknown_keyword_refused(config: Config) -> bool:
    """Does a call surely stop at a keyword that is not known? An older release or a commit may take it."""
    pins = config.pins
    return is_config_of_python_program(config) and not (
        pins.asks_for_commit(config.stack)
        or pins.is_release_surely_before(config.stack, config.version)
    )


def describe_removal_release(config: Config, old: RenamedKey) -> str:
    """From which release on an old name is not taken, in words."""
    return (
        old.taken.describe_since_when_name_is_gone(old.package)
        if old.taken
        else f"in {config.stack} {config.version}"
    )


def describe_readers_of_old_names(config: Config, several: list[RenamedKey]) -> str:
    """Who may still take these names of earlier releases, in words."""
    pinned = next(
        (old.package for old in several if config.pins.asks_for_commit(old.package)), None
    )
    return (
        "the script that reads this file"
        if pinned is None
        else f"the commit of {pinned} that is asked for"
    )


def likely_meant_key(place: SettingLocation, names: frozenset[str]) -> str | None:
    """The key that this one is a misspelling of."""
    return find_misspelt_key(place.key.rpartition(".")[2], names)
