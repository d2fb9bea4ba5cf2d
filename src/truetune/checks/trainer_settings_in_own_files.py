"""Reads the settings that a script or wandb keeps in a file of its own (`args.json`, `hparams.yaml`, `config.yaml`),
where they are called as in TrainingArguments.

Such a file is of no stack, so no reader of configs takes it. Its names are taken at their word where several of them
stand together: one alone (`seed`, `fp16`) may mean anything.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from truetune.checks.read_settings_in_launch_files import first_set_value
from truetune.errors import TruetuneError, UsageError
from truetune.logs.facts_in_files_beside_log import SettingBeside
from truetune.settings.located_document import LocatedDocument, read_located_document
from truetune.settings.recognise_input_kind import recognise_kinds

TRAINER_NAMES = frozenset(
    (
        "per_device_train_batch_size", "per_device_eval_batch_size", "gradient_accumulation_steps",
        "gradient_checkpointing", "learning_rate", "num_train_epochs", "max_steps", "lr_scheduler_type",
        "logging_steps", "eval_steps", "save_steps", "max_grad_norm", "warmup_steps", "warmup_ratio",
        "weight_decay", "bf16", "fp16",
    )
)  # fmt: skip
"""Names of TrainingArguments that the rules on logs ask for, or that often stand beside them"""
# Chosen, not measured: three of these names stand together in the settings of other programs too.
MIN_TRAINER_NAMES = 4


def trainer_settings_in_own_file(file: Path, wanted: Collection[str]) -> list[SettingBeside]:
    """The settings of a training in a file of no known stack.

    Args:
        file: a YAML or JSON file.
        wanted: the names that are asked for, as TrainingArguments has them.

    Returns:
        Those that are switches or numbers, with their lines; none where the file can't be read or is of another kind.
    """
    try:
        if _is_of_known_kind(file):
            return []
        return list(_settings_of_document(read_located_document(file), wanted))
    except (TruetuneError, OSError, ValueError):
        return []


def _is_of_known_kind(file: Path) -> bool:
    """Is a file one that truetune reads as something else: the settings of a stack, rows, a model's file?"""
    try:
        return recognise_kinds(file)[0] != "settings"
    except UsageError:
        return False


def _settings_of_document(
    document: LocatedDocument, wanted: Collection[str]
) -> Iterator[SettingBeside]:
    """The settings in the mappings of a document, at its top or one level below."""
    whole = document.value if isinstance(document.value, Mapping) else {}
    parts: list[tuple[tuple[str, ...], Mapping[str, object]]] = [((), whole)]
    parts += [((name,), part) for name, part in whole.items() if isinstance(part, Mapping)]
    for way, part in parts:
        if len(TRAINER_NAMES.intersection(part)) < MIN_TRAINER_NAMES:
            continue
        for name in wanted:
            # The config.yaml of wandb has `name: {value: ...}`.
            located_value = first_set_value(document, (*way, name), (*way, name, "value"))
            if located_value is not None and isinstance(located_value.value, bool | int | float):
                yield SettingBeside(
                    name,
                    located_value.value,
                    located_value.file,
                    located_value.line,
                    located_value.text,
                )
