"""Reads the YAML of TRL's command line, and of scripts that use TrlParser.

The file does not say which trainer it is for: `trl sft` and `trl dpo` read the same keys. The class whose own keys fit
best is taken, then the one that the file's name holds, and a note says where no key decides. Defaults depend on the
class, so a wrong guess would judge values that nobody set: rules on defaults are silent where the release is unknown.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from truetune.settings.config import Config
from truetune.settings.located_document import LocatedDocument
from truetune.settings.release_pins import pins_of_project_files
from truetune.settings.release_windows_of_removed_names import first_release_of_major
from truetune.settings.stacks.config_draft import ConfigDraft, draft_of_document, is_switched_on
from truetune.settings.stacks.datasets_of_config import (
    ConfigDataset,
    local_dataset_files,
    set_datasets_of_draft,
)
from truetune.settings.stacks.known_keys import RENAMED_KEYS, load_known_keys
from truetune.settings.stacks.read_trainer_arguments import (
    METHOD_OF_CLASS,
    class_defaults,
    read_class_of_arguments,
    read_model_arguments,
    read_trl_supervision,
)
from truetune.settings.suggest_spelling import find_misspelt_key

TRAINER_CLASSES = (
    "SFTConfig",
    "DPOConfig",
    "KTOConfig",
    "RewardConfig",
    "GRPOConfig",
    "RLOOConfig",
    "DistillationConfig",
    "ORPOConfig",
    "CPOConfig",
)
"""The trainers' classes; of two that fit as well, the first is meant."""
SHARED_CLASSES = ("ModelConfig", "ScriptArguments", "DatasetMixtureConfig")
SCRIPT_CLASSES = {"GRPOConfig": ("GRPOScriptArguments",), "RLOOConfig": ("RLOOScriptArguments",)}
"""What a trainer's own script merges with these"""
SCRIPT_ONLY_KEYS = frozenset(("dataset_mixture", "dataset_mixer", "dataset_splits"))
"""Keys of scripts with settings of their own that no other stack has"""
OLD_KEYS = frozenset(("torch_dtype",))
"""Keys of earlier releases, likewise"""
UNREAD_COLUMNS = frozenset(("system", "documents"))
"""Columns beside messages or prompt that TRL gives to no template (tools and chat_template_kwargs it does)"""
TRAINER_SIGNS = {
    "SFTConfig": frozenset(("max_seq_length", "dataset_batch_size")),
    "DPOConfig": frozenset(("max_prompt_length", "ref_model_init_kwargs", "rpo_alpha")),
    "KTOConfig": frozenset(("desirable_weight", "undesirable_weight")),
    "GRPOConfig": frozenset(("num_generations", "max_completion_length")),
}
"""Keys, of this release or an earlier one, that speak for one trainer"""


MAX_KEYS_SHOWN = 6
"""Keys of a file's own that a note names. Chosen by hand: they fit on a line or two, and some are
enough to recognise the script; more would hide what the note says of them"""


@cache
def trl_launcher_keys() -> frozenset[str]:
    """Keys that the command line takes itself, or hands to `accelerate launch`."""
    return frozenset(
        ("env", "config", "accelerate_config", *load_known_keys("trl").classes["accelerate launch"])
    )


@cache
def trl_keys() -> frozenset[str]:
    """All keys that tell a TRL YAML: of this release, of earlier ones, and of scripts that read TRL's and their own."""
    known = {
        *class_defaults("SFTConfig"),
        *trl_launcher_keys(),
        *RENAMED_KEYS["trl"],
        *SCRIPT_ONLY_KEYS,
        *OLD_KEYS,
    }
    scripts = (name for names in SCRIPT_CLASSES.values() for name in names)
    return frozenset(
        known.union(
            *(
                load_known_keys("trl").classes[name]
                for name in (*TRAINER_CLASSES, *SHARED_CLASSES, *scripts)
            )
        )
    )


@cache
def _keys_and_defaults_of_trainer_script(name: str) -> dict[str, Any]:
    """The keys and defaults of all that the script of a trainer's class merges."""
    made = class_defaults(name)
    for part in (*SHARED_CLASSES, *SCRIPT_CLASSES.get(name, ())):
        made |= load_known_keys("trl").classes[part]
    return made


def guess_trainer_class_and_if_sure(document: LocatedDocument) -> tuple[str, bool]:
    """The trainer's class, and whether the keys leave no other."""
    given = set(document.value)
    base = set(load_known_keys("transformers").classes["TrainingArguments"]).union(
        *(load_known_keys("trl").classes[name] for name in SHARED_CLASSES)
    )
    own = {
        name: set(_keys_and_defaults_of_trainer_script(name)) - base
        | TRAINER_SIGNS.get(name, frozenset())
        for name in TRAINER_CLASSES
    }
    scores = {
        name: len(given & own[name]) + len(given & TRAINER_SIGNS.get(name, frozenset()))
        for name in TRAINER_CLASSES
    }
    stem = document.path.rpartition("/")[2].lower()
    best = max(scores.values())
    equal = [name for name in TRAINER_CLASSES if scores[name] == best]
    named = next((name for name in equal if name.removesuffix("Config").lower() in stem), equal[0])
    return named, len(equal) == 1


def read_trl_config(document: LocatedDocument, trainer: str = "") -> Config:
    """A YAML file of TRL.

    Args:
        document: the file.
        trainer: the class of its settings, where the command that reads them says it.

    Raises:
        SpecError: a value that its field does not take.
    """
    name, is_sure = (trainer, True) if trainer else guess_trainer_class_and_if_sure(document)
    release = load_known_keys("trl").release
    defaults = _keys_and_defaults_of_trainer_script(name)
    known = {*defaults, *trl_launcher_keys()}
    pins = pins_of_project_files(document.path)
    # Before the same major number, a key that is not set may have had another default: then nothing is known of it.
    is_older = pins.is_release_surely_before("trl", first_release_of_major(release))
    draft = draft_of_document(document, "trl", release, {} if is_older else defaults, known)
    draft.pins = pins
    draft.notes.append(
        f"read as the settings of {name} ({METHOD_OF_CLASS[name]})"
        + ("" if is_sure else ", because no key speaks for another")
    )
    limit = read_class_of_arguments(draft, name)
    read_model_arguments(draft)
    model = draft.local_folder_or_name(draft.get("model_name_or_path"))
    draft.put("tokenizer", model, "model_name_or_path")
    draft.put("model", model, "model_name_or_path")
    draft.take("training.devices", "num_processes")
    if is_switched_on(draft.get("use_peft")):
        _read_lora(draft)
    set_datasets_of_draft(draft, _datasets_named_in_yaml(draft), "dataset_name", "datasets")
    _read_template_if_file_is_here(draft)
    # What is learned depends on the columns of the rows and on the template, so it comes after both.
    if name == "SFTConfig":
        read_trl_supervision(draft)
    _note_keys_that_script_must_have_added(draft, document)
    return draft.make_config(known, limit, ("transformers", "trl"))


def _read_template_if_file_is_here(draft: ConfigDraft) -> None:
    """Read the chat template, if its file is here.

    The folder of another tokenizer is not read: TRL clones its special tokens along with its template.
    """
    template = draft.get("chat_template_path")
    path = draft.find(template) if isinstance(template, str) else None
    if path is not None and path.is_file():
        draft.put("template", str(path), "chat_template_path")


def _note_keys_that_script_must_have_added(draft: ConfigDraft, document: LocatedDocument) -> None:
    """Say which keys a script that merges its own settings with TRL's must have brought."""
    # A key that transformers has given up is one of an earlier release, and no script's.
    known = trl_keys() | RENAMED_KEYS["transformers"].keys()
    own = [
        key
        for key in document.value
        if key in SCRIPT_ONLY_KEYS
        or (key not in known and find_misspelt_key(str(key), trl_keys()) is None)
    ]
    draft.own_keys = bool(own)
    if own:
        more = ", ..." if len(own) > MAX_KEYS_SHOWN else ""
        draft.notes.append(
            f"TRL-like, with keys of its own ({', '.join(map(str, own[:MAX_KEYS_SHOWN]))}{more}): a"
            " script that merges them with TRL's reads it"
        )


def _read_lora(draft: ConfigDraft) -> None:
    """Read the settings of LoRA."""
    draft.put("training.lora", {}, "use_peft")
    for field, key in (
        ("r", "lora_r"),
        ("lora_alpha", "lora_alpha"),
        ("lora_dropout", "lora_dropout"),
        ("target_modules", "lora_target_modules"),
        ("target_parameters", "lora_target_parameters"),
        ("modules_to_save", "lora_modules_to_save"),
        ("use_rslora", "use_rslora"),
        ("use_dora", "use_dora"),
    ):
        made = {
            "target_modules": _target_module_names,
            "target_parameters": _listed_names,
            "modules_to_save": _listed_names,
        }.get(field)
        draft.take(f"training.lora.{field}", key, made=made or (lambda value: value))


def _listed_names(value: Any) -> Any:
    """A list of one name where the option gives it alone, as `--lora_modules_to_save score` does."""
    return [value] if isinstance(value, str) else value


def _target_module_names(value: Any) -> Any:
    """The names of target modules; `all-linear` where the list holds that alone."""
    return (
        value[0]
        if isinstance(value, list) and len(value) == 1 and value[0] == "all-linear"
        else value
    )


def _datasets_named_in_yaml(draft: ConfigDraft) -> list[ConfigDataset]:
    """The data sets that the file names, each with its local files."""
    found = []
    name = draft.get("dataset_name")
    if isinstance(name, str):
        found.append(ConfigDataset(name, local_dataset_files(draft, name), unread=UNREAD_COLUMNS))
    several = draft.get("datasets")
    for given in several if isinstance(several, list) else ():
        if isinstance(given, dict) and isinstance(given.get("path"), str):
            path = given["path"]
            found.append(
                ConfigDataset(
                    path,
                    local_dataset_files(
                        draft, path, given.get("data_files"), given.get("data_dir")
                    ),
                    unread=UNREAD_COLUMNS,
                )
            )
    return found
