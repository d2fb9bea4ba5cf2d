"""Reads a file of transformers' TrainingArguments: `python train.py args.json`, which HfArgumentParser takes.

Such a file names no program, and many scripts have words of it (`output_dir`, `learning_rate`). It is taken for one
where all of its keys are those of TrainingArguments and of transformers' example scripts, and there are several.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from truetune.settings.config import Config
from truetune.settings.located_document import LocatedDocument
from truetune.settings.release_pins import pins_of_project_files
from truetune.settings.stacks.config_draft import draft_of_document
from truetune.settings.stacks.known_keys import RENAMED_KEYS, load_known_keys
from truetune.settings.stacks.read_trainer_arguments import (
    defaults_same_in_asked_releases,
    read_class_of_arguments,
)

KEYS_OF_EXAMPLE_SCRIPTS = frozenset((
    "model_name_or_path", "config_name", "tokenizer_name", "cache_dir", "model_revision", "trust_remote_code",
    "dataset_name", "dataset_config_name", "train_file", "validation_file", "test_file", "max_train_samples",
    "max_eval_samples", "block_size", "validation_split_percentage", "preprocessing_num_workers", "overwrite_cache",
    "streaming", "use_fast_tokenizer", "low_cpu_mem_usage", "task_name", "pad_to_max_length",
))  # fmt: skip
"""Of run_clm.py and its kin, beside TrainingArguments"""
# One more than in any file of a script's own words that is known (tests/settings/test_whose.py has five).
MIN_ARGUMENTS = 6
"""Keys of TrainingArguments in a file"""


@cache
def training_arguments_keys() -> frozenset[str]:
    """The keys of TrainingArguments today and before, and of the scripts beside them."""
    own = load_known_keys("transformers").classes["TrainingArguments"]
    return frozenset(own) | frozenset(RENAMED_KEYS["transformers"]) | KEYS_OF_EXAMPLE_SCRIPTS


def is_training_arguments(value: Mapping[Any, Any]) -> bool:
    """Are all keys those of TrainingArguments and its scripts, and is there a folder for the result?"""
    given = frozenset(map(str, value))
    own = given - KEYS_OF_EXAMPLE_SCRIPTS
    return (
        "output_dir" in given and len(own) >= MIN_ARGUMENTS and given <= training_arguments_keys()
    )


def read_training_arguments_config(document: LocatedDocument) -> Config:
    """The arguments in a file. Raises SpecError."""
    pins = pins_of_project_files(document.path)
    defaults = defaults_same_in_asked_releases("TrainingArguments", pins)
    release = load_known_keys("transformers").release
    draft = draft_of_document(document, "transformers", release, defaults)
    draft.pins = pins
    draft.take("model", "model_name_or_path", made=draft.local_folder_or_name)
    limit = read_class_of_arguments(draft, "TrainingArguments")
    draft.notes.append(
        "arguments of transformers' Trainer: the script says what is trained on which rows"
    )
    return draft.make_config(training_arguments_keys(), limit, ("transformers",))
