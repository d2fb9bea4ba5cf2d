"""Recognises whose settings file a file is, and reads it. `registry` lists the programs.

No file says which program it is for, and many keys are words of several. So a file is a stack's only where keys that
no other has show it, where a command or script of its project reads it, or where the user says so; what merely fits
is "settings of a program that is not known". Trade-off: some short files have to be named (`--trainer`), and none is
judged by the defaults of a program that never reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from os import PathLike
from pathlib import Path

from truetune.errors import SpecError, format_name_list
from truetune.settings import located_document
from truetune.settings.config import Config, SettingLocation, Stack
from truetune.settings.located_document import LocatedDocument
from truetune.settings.read_truetune_settings import CONFIG_NAME
from truetune.settings.release_pins import pins_of_project_files
from truetune.settings.run_spec import RunSpec
from truetune.settings.stacks import identifying_keys, read_truetune_yaml
from truetune.settings.stacks.find_who_reads_config_or_starts_script import (
    ConfigConsumer,
    find_program_that_reads_settings,
)
from truetune.settings.stacks.registry import (
    ConfigReader,
    config_readers,
    readers_of_other_programs,
)
from truetune.settings.suggest_spelling import find_misspelt_key
from truetune.trainers.trainer_fact_types import TrainerName

TRUETUNE_KEYS = frozenset(RunSpec.model_fields)
TABLE_KEYS = frozenset(
    ("learn", "encode", "training", "watch", "map", "template_kwargs", "trainer")
)
"""Our settings that may hold settings"""
KEYS_OF_TRUETUNE_ALONE = frozenset(
    (
        "learn",
        "history",
        "mask_by",
        "response_marker",
        "append_eos",
        "encode",
        "rehearsal",
        "fail_on",
    )
)
"""Our settings that no other format has, as far as is known"""
ACCELERATE = "an accelerate launch configuration"
DEEPSPEED = "a DeepSpeed configuration"
KEYS_OF_OTHER_FILES: Mapping[str, frozenset[str]] = {
    ACCELERATE: frozenset(("compute_environment", "distributed_type")),
    DEEPSPEED: frozenset(("zero_optimization", "train_micro_batch_size_per_gpu")),
    "a model's config.json": frozenset(("architectures", "transformers_version")),
}
"""What is no run's settings, and keys that tell it"""
LLAMA_FACTORY_V1 = "settings of LLaMA-Factory's v1 form, which truetune does not read"
LLAMA_FACTORY_V1_KEYS = frozenset((
    "model", "custom_chat_template", "trust_remote_code", "flash_attn", "model_class", "init_config", "peft_config",
    "kernel_config", "quant_config", "train_dataset", "eval_dataset", "output_dir", "micro_batch_size",
    "global_batch_size", "cutoff_len", "learning_rate", "num_train_epochs", "max_steps", "max_grad_norm", "bf16",
    "batching_strategy", "batching_workers", "enable_activation_checkpointing", "dist_config", "dp_size", "cp_size",
    "cp_mode", "mp_replicate_size", "mp_shard_size", "dist_timeout", "optim_config", "lr_scheduler_config", "seed",
    "full_determinism", "resume_from_checkpoint", "save_steps", "save_epochs", "save_ckpt_as_hf", "save_total_limit",
    "logging_steps", "pref_loss", "pref_beta", "pref_ftx", "simpo_gamma", "dpo_label_smoothing", "ld_alpha",
    "sample_backend", "max_new_tokens",
))  # fmt: skip
"""The keys of LLaMA-Factory's rewritten form (its `src/llamafactory/v1/config`), which names its parts in tables like
`peft_config: {name: lora}`"""
LLAMA_FACTORY_V1_SIGNS = frozenset(
    (
        "dist_config",
        "quant_config",
        "model_class",
        "kernel_config",
        "init_config",
        "sample_backend",
        "batching_strategy",
        "train_dataset",
        "peft_config",
    )
)
"""Those that no other stack here knows"""
OWN_TOML_TABLE = "[tool.truetune"
"""How our table in a pyproject.toml begins"""
MODEL_KEYS = frozenset(
    ("model", "model_name", "model_id", "model_path", "model_name_or_path", "base_model")
)
"""What files of this kind call their model; a stack reads only files that name it as it does itself"""


def read_config(path: str | PathLike[str], trained_by: TrainerName | None = None) -> Config:
    """The settings in a YAML or JSON file of any stack that truetune knows; of a folder, its
    truetune.yaml.

    `trained_by` names the program that reads the file, where the user says it.

    Raises SpecError where the file is broken, or is of none of them.
    """
    path = Path(path) / CONFIG_NAME if Path(path).is_dir() else Path(path)
    if is_toml_with_own_table(path):
        return read_truetune_yaml.read_truetune_config(
            LocatedDocument(str(path), located_document.read_text_of_config_size(path), {}, {})
        )
    document = located_document.read_located_document(path)
    stack = identify_stack(document.value, path, trained_by)
    if stack is None and path.suffix == ".toml":
        raise SpecError(
            f"{path}: there is no [tool.truetune] in it; expected that, or the settings of prime-rl"
        )
    if stack is None:
        unlock = advise_how_to_identify(document.value)
        raise SpecError(
            f"{path}: found {_describe_value_without_settings(document.value)}; expected the settings of truetune, "
            "TRL, Axolotl (base_model, datasets) or LLaMA-Factory (stage, model_name_or_path, dataset)"
            f"{'. ' * bool(unlock)}{unlock}"
        )
    config = _record_who_reads_settings(
        config_readers()[stack].read(document),
        _program_that_reads_file_if_told(stack, document.value, path, trained_by),
    )
    repeated = tuple(
        (
            _location_at(document, twice.keys, twice.first),
            _location_at(document, twice.keys, twice.second),
        )
        for twice in document.twice
    )
    also = [
        other
        for other in _fitting_stacks_shown_by_keys(document.value, _fitting_stacks(document.value))
        if other != stack
    ]
    notes = (
        (f"read as settings of {stack}; the keys are also {' and '.join(also)}'s",) if also else ()
    )
    pins = config.pins if config.pins.by_stack else pins_of_project_files(str(path))
    return replace(config, repeated=repeated, pins=pins, notes=(*notes, *config.notes))


def is_toml_with_own_table(path: Path) -> bool:
    """Is it a TOML file that holds our table? Raises SpecError for one that can't be read."""
    return path.suffix == ".toml" and OWN_TOML_TABLE in located_document.read_text_of_config_size(
        path
    )


def identify_stack(
    value: object, path: Path | None = None, trained_by: TrainerName | None = None
) -> Stack | None:
    """The stack whose settings these are; None if it cannot be told.

    It is told by the keys that only one stack knows, by who reads the file at `path` in its project, or by the user.
    """
    fitting = _fitting_stacks(value)
    if trained_by in fitting:
        return next(stack for stack in fitting if stack == trained_by)
    sure = _fitting_stacks_shown_by_keys(value, fitting)
    if sure:
        return sure[0]
    reader = (
        _program_that_reads_file_if_told(None, value, path, None)
        if fitting and path is not None
        else None
    )
    return reader.stack if reader is not None and reader.stack in fitting else None


def advise_how_to_identify(value: object) -> str:
    """Advice on what would show whose settings these are; empty if they are like no stack's, or it
    is known.
    """
    fitting = _fitting_stacks(value)
    if not fitting or _fitting_stacks_shown_by_keys(value, fitting):
        return ""
    names = " or ".join(fitting)
    command = config_readers()[fitting[0]].command
    return (
        f"where {names} itself reads it, give --trainer {' or --trainer '.join(fitting)}, or name"
        f" the file in a command of its project (`{command}` in a shell script or README)"
    )


def _program_that_reads_file_if_told(
    stack: Stack | None, value: object, path: Path | None, trained_by: TrainerName | None
) -> ConfigConsumer | None:
    """The program that reads the file, as the user or its project says; if `stack` is given, only
    that.
    """
    if stack == "truetune" or path is None or not isinstance(value, dict):
        return None
    if trained_by is not None and stack == trained_by:
        return ConfigConsumer(trained_by, f"--trainer {trained_by}", by_user=True)
    reader = find_program_that_reads_settings(path, frozenset(map(str, value)))
    return reader if reader is not None and stack in (None, reader.stack) else None


def _record_who_reads_settings(config: Config, reader: ConfigConsumer | None) -> Config:
    """The settings, once it is known who reads them: fields of the script that reads them are known
    keys.
    """
    if reader is None:
        return config
    unknown = tuple(place for place in config.unknown if place.key not in reader.own_fields)
    notes = config.notes if reader.by_user else (f"read by {reader.told_by}", *config.notes)
    return replace(config, unknown=unknown, read_by=reader.told_by, notes=notes)


def _fitting_stacks_shown_by_keys(value: object, fitting: tuple[Stack, ...]) -> tuple[Stack, ...]:
    """Those of the fitting stacks that the keys alone show."""
    if not isinstance(value, dict):
        return ()
    return tuple(
        stack
        for stack in fitting
        if stack == "truetune" or identifying_keys.do_keys_identify_stack(stack, value)
    )


def _fitting_stacks(value: object) -> tuple[Stack, ...]:
    """The stacks whose keys the file's may be, those that fit best first."""
    if (
        not isinstance(value, dict)
        or not value
        or name_kind_of_file_without_run_settings(value) is not None
    ):
        return ()
    if _are_truetune_settings(value):
        return ("truetune",)
    readers = readers_of_other_programs()
    known = {stack: reader.keys() for stack, reader in readers.items()}
    keys = {str(key) for key in value}
    scores = {
        stack: _score_of_fit(keys, stack, known)
        for stack, reader in readers.items()
        if _does_model_key_fit_reader(keys, reader)
        and _has_keys_of_stack(value, stack, known[stack])
    }
    return tuple(sorted(scores, key=lambda stack: -scores[stack]))


def _does_model_key_fit_reader(keys: set[str], reader: ConfigReader) -> bool:
    """Is the key of the model, where a file has one, that of this reader?"""
    model_keys = keys & MODEL_KEYS
    return not model_keys or reader.model_key in model_keys


def _has_keys_of_stack(
    value: Mapping[object, object], stack: Stack, known_keys: frozenset[str]
) -> bool:
    """Does a stack know at least half of a file's keys?"""
    # Their words are those of many files: without their tables, they are not even like theirs.
    if (
        stack in identifying_keys.TOLD_BY_COMMON_TABLES
        and not identifying_keys.do_keys_identify_stack(stack, value)
    ):
        return False
    # Half: a script's own file may share some words with a stack, a stack's file has few words that it lacks.
    keys = {str(key) for key in value}
    return 2 * len(keys & known_keys) >= len(keys)


def _score_of_fit(keys: set[str], stack: Stack, known: Mapping[Stack, frozenset[str]]) -> int:
    """How well the keys fit a stack: one that no other stack knows counts three times."""
    elsewhere = frozenset().union(*(known[name] for name in known if name != stack))
    return len(keys & known[stack]) + 2 * len(keys & (known[stack] - elsewhere))


def _are_truetune_settings(value: Mapping[object, object]) -> bool:
    """Are these the settings of truetune: is each key one of them or a misspelling of one, and its value of that form?

    `model`, `data` and `trainer` are words of many formats, so a file that holds others beside is not taken for ours:
    unless it holds a setting that is ours alone.
    """
    given = {str(key).replace("-", "_"): item for key, item in value.items()}
    fitting = {
        key
        for key, item in given.items()
        if key in TRUETUNE_KEYS and isinstance(item, dict) <= (key in TABLE_KEYS)
    }
    if _is_data_a_list_of_rows(given):
        fitting.discard("data")
    rest = given.keys() - fitting
    if len(fitting) < len(rest):
        return False
    misspelt = {
        key for key in rest if key not in TRUETUNE_KEYS and find_misspelt_key(key, TRUETUNE_KEYS)
    }
    if not rest - misspelt:
        return bool(fitting)
    return bool(fitting & KEYS_OF_TRUETUNE_ALONE)


def _is_data_a_list_of_rows(value: Mapping[str, object]) -> bool:
    """Is `data` a list of rows, so that the file holds data and no settings?"""
    data = value.get("data")
    return isinstance(data, list) and any(isinstance(item, dict) for item in data)


def name_kind_of_file_without_run_settings(value: object) -> str | None:
    """What a file is that is no run's settings, by its keys."""
    given = {str(key) for key in value} if isinstance(value, dict) else set()
    if (
        given & LLAMA_FACTORY_V1_SIGNS
        and "model_name_or_path" not in given
        and 2 * len(given & LLAMA_FACTORY_V1_KEYS) > len(given)
    ):
        return LLAMA_FACTORY_V1
    return next((name for name, keys in KEYS_OF_OTHER_FILES.items() if given & keys), None)


def _describe_value_without_settings(value: object) -> str:
    """A phrase on a value that is no settings."""
    if (name := name_kind_of_file_without_run_settings(value)) is not None:
        return name
    keys = format_name_list(value, empty="") if isinstance(value, dict) else ""
    return f"the keys {keys}" if keys else "nothing" if value is None else "no settings by name"


def _location_at(
    document: LocatedDocument, keys: located_document.KeyPath, spot: located_document.TextPosition
) -> SettingLocation:
    """The location of keys in a document, at a known position."""
    return SettingLocation(document.path, spot.line, ".".join(map(str, keys)), spot.column)
