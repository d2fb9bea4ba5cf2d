"""Finds files that hold settings of a training and that nothing read.

No program is known for them, and no script hands them to a class of a trainer's arguments. That nothing was found in
them says nothing, so they are named.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from truetune.checks.judgement import NotJudged
from truetune.errors import TruetuneError
from truetune.settings import located_document
from truetune.settings.stacks.read_trainer_arguments import class_defaults

MAX_SCRIPTS = 20
"""Scripts of a folder that are asked. Chosen, not measured: a folder of more is a collection of examples"""
SETTINGS_SUFFIXES = (".yaml", ".yml", ".json", ".toml")
MIN_TRAINING_KEYS = 3
"""Of the words of `TrainingArguments`: other programs have a seed, or a learning_rate"""


def unread_training_setting_paths(folder: Path, unread: Sequence[str]) -> list[str]:
    """The settings of a training that were taken for nothing, and that no script hands to a trainer's class.

    Args:
        folder: where they lie, beside the scripts that may read them.
        unread: names of files in it that are of no known kind.
    """
    # Here and not above: most folders hold no such file, and the reader of scripts takes long to import.
    from truetune.source.settings_of_script_as_configs import settings_files_read_into_arguments

    paths = [
        str(folder / name)
        for name in unread
        if Path(name).suffix in SETTINGS_SUFFIXES and _holds_training_keys(folder / name)
    ]
    if not paths:
        return []
    scripts = sorted(folder.glob("*.py"))[:MAX_SCRIPTS]
    read = {
        os.path.realpath(file)
        for script in scripts
        for file in settings_files_read_into_arguments(script)
    }
    return [file for file in paths if os.path.realpath(file) not in read]


def _holds_training_keys(path: Path) -> bool:
    """Does a file hold keys of `TrainingArguments`, at its top or one level below?"""
    try:
        value = located_document.read_located_document(path).value
    except TruetuneError:
        return False
    if not isinstance(value, dict):
        return False
    keys = {str(key) for part in (value, *value.values()) if isinstance(part, dict) for key in part}
    return len(keys & class_defaults("TrainingArguments").keys()) >= MIN_TRAINING_KEYS


def not_judged_unread_settings(path: str) -> NotJudged:
    """Settings of a training whose program is not known: that nothing was found in them says nothing."""
    return NotJudged(
        "the settings",
        "this file holds settings of a training and was not read: its keys are not those of one program, and no script"
        " beside it is seen to hand them to a class of a trainer's arguments",
        place=path,
        unlock="name who reads it with --trainer, or give the keys to the class in the open:"
        " HfArgumentParser(CLASS).parse_yaml_file(FILE)",
        asked=False,
        always_told=True,
    )
