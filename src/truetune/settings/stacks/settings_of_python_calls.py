"""Reads calls in a Python program as a Config: `SFTConfig(...)`, `LoraConfig(...)`,
`from_pretrained(...)`.

A script has no file of settings, but these calls are its settings: read so, every rule on settings holds for scripts
too. Values that are no constants are `UNKNOWN_VALUE`, never the default: what is not known is not judged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from truetune.settings.config import Config, SettingLocation
from truetune.settings.release_pins import Pins
from truetune.settings.stacks.config_draft import ConfigDraft, is_switched_on
from truetune.settings.stacks.known_keys import load_known_keys
from truetune.settings.stacks.read_shared_stack_arguments import flatten_token_indices
from truetune.settings.stacks.read_trainer_arguments import (
    METHOD_OF_CLASS,
    class_defaults,
    defaults_same_in_asked_releases,
    read_class_of_arguments,
    read_load_in_bits,
    read_model_arguments,
)

LORA_ARGUMENTS = (
    "r",
    "lora_alpha",
    "lora_dropout",
    "target_modules",
    "target_parameters",
    "modules_to_save",
    "trainable_token_indices",
    "use_rslora",
    "use_dora",
    "init_lora_weights",
)


class ConfigCall(NamedTuple):
    """One call with the values of its arguments; UNKNOWN_VALUE where a value is not a constant."""

    name: str
    """`SFTConfig`, `LoraConfig`, `from_pretrained`"""
    arguments: Mapping[str, Any]
    places: Mapping[str, SettingLocation] = {}
    complete: bool = True
    """No `**kwargs` whose content is not known: what is not given has its default."""
    older: Pins | None = None
    """The pins of a program that asks for an older release: only defaults that did not change are known then"""


def config_of_python_call(
    class_name: str,
    arguments: Mapping[str, Any],
    places: Mapping[str, SettingLocation],
    path: str,
    text: str,
) -> Config:
    """One call as a Config. Raises SpecError for a value that its field does not take."""
    return config_of_calls_of_one_run([ConfigCall(class_name, arguments, places)], path, text)


def config_of_calls_of_one_run(calls: Iterable[ConfigCall], path: str, text: str) -> Config:
    """The calls of one run as a Config.

    Args:
        calls: of several calls of one name, the last counts; other names are left alone.
        path: of the program.
        text: of the program, for fixes.

    Raises:
        SpecError: a value that its field does not take.
    """
    by_name = {call.name: call for call in calls}
    trainer = next((name for name in by_name if name in METHOD_OF_CLASS), None)
    package = "trl" if trainer in load_known_keys("trl").classes else "transformers"
    arguments_call = by_name[trainer] if trainer else ConfigCall("", {})
    draft = _draft_of_call(arguments_call, package, path, text)
    known: set[str] = set()
    limit = None
    if trainer is not None:
        known = set(class_defaults(trainer))
        limit = _read_arguments_and_give_length_limit(draft, arguments_call, trainer)
    unknown = {key for key in draft.values if key not in known}
    draft.raw, draft.where = dict(draft.values), dict(draft.where)
    for name in PART_READERS:
        if name in by_name:
            part = _draft_of_call(by_name[name], package, path, text)
            unknown |= _merge_call_and_give_unknown_keys(draft, part, by_name[name])
    return draft.make_config(draft.raw.keys() - unknown, limit, ("transformers", "trl"))


def _read_arguments_and_give_length_limit(
    draft: ConfigDraft, call: ConfigCall, trainer: str
) -> int | None:
    """Read the call of a trainer's class of arguments into the draft; returns the limit on an
    example's length.
    """
    # `**kwargs` may set any key: then nothing is known to have its default.
    draft.defaults = _known_defaults_of_omitted_arguments(call) if call.complete else {}
    limit = read_class_of_arguments(draft, trainer)
    if not call.complete and draft.get("max_length", "max_seq_length") is None:
        # Among what is not seen may be a limit.
        draft.put("training.open_length_limit", True)
    return limit


def _known_defaults_of_omitted_arguments(call: ConfigCall) -> dict[str, Any]:
    """The defaults of what a call of a class of arguments leaves out, as far as they are known."""
    if call.older is None:
        return class_defaults(call.name)
    return defaults_same_in_asked_releases(call.name, call.older)


def _merge_call_and_give_unknown_keys(
    draft: ConfigDraft, part: ConfigDraft, call: ConfigCall
) -> set[str]:
    """Put what a call beside that of the arguments says into the draft; returns its keys that its class lacks.

    Its keys are named after the call (`LoraConfig.r`), so that they do not hide those of the arguments.
    """
    PART_READERS[call.name](part, call.complete)
    draft.fields |= part.fields
    draft.places |= part.places
    draft.raw = {
        **(draft.raw or {}),
        **{f"{call.name}.{key}": value for key, value in part.values.items()},
    }
    draft.where = {
        **draft.where,
        **{f"{call.name}.{key}": place for key, place in part.where.items()},
    }
    # Of the other classes not all keys are recorded, so nothing is said of theirs.
    if call.name != "LoraConfig":
        return set()
    known = load_known_keys("peft").classes["LoraConfig"]
    return {f"{call.name}.{key}" for key in part.values if key not in known}


def _draft_of_call(call: ConfigCall, package: str, path: str, text: str) -> ConfigDraft:
    """A draft with the arguments of one call, and the defaults of its class."""
    stack: Any = package
    return ConfigDraft(
        stack, load_known_keys(package).release, path, dict(call.arguments), call.places, text=text
    )


def _read_lora(draft: ConfigDraft, complete: bool) -> None:
    """Read the arguments of LoraConfig."""
    draft.defaults = load_known_keys("peft").classes["LoraConfig"] if complete else {}
    draft.fields["training.lora"] = {}
    for key in LORA_ARGUMENTS:
        draft.take(
            f"training.lora.{key}",
            key,
            made=flatten_token_indices if key == "trainable_token_indices" else _sorted_list_if_set,
        )
    if draft.where:
        draft.places["training.lora"] = next(iter(draft.where.values()))


def _sorted_list_if_set(value: Any) -> Any:
    """A set as a sorted list; any other value as it is."""
    return sorted(value) if isinstance(value, (set, frozenset)) else value


def _read_bits_and_bytes_config(draft: ConfigDraft, complete: bool) -> None:
    """Read the arguments of BitsAndBytesConfig."""
    read_load_in_bits(draft)


def _read_from_pretrained_arguments(draft: ConfigDraft, complete: bool) -> None:
    """Read the arguments of `from_pretrained`."""
    read_model_arguments(draft)
    name = draft.local_folder_or_name(draft.get("pretrained_model_name_or_path"))
    draft.put("tokenizer", name, "pretrained_model_name_or_path")
    draft.put("model", name, "pretrained_model_name_or_path")


def _read_arguments_of_trainer_train(draft: ConfigDraft, complete: bool) -> None:
    """Read the arguments of `trainer.train`."""
    draft.take("training.resume_from_checkpoint", "resume_from_checkpoint")


def _read_model_config(draft: ConfigDraft, complete: bool) -> None:
    """Read the arguments of TRL's ModelConfig."""
    draft.defaults = load_known_keys("trl").classes["ModelConfig"] if complete else {}
    read_model_arguments(draft)
    if is_switched_on(draft.get("use_peft")):
        draft.fields["training.lora"] = {}


PART_READERS: Mapping[str, Callable[[ConfigDraft, bool], None]] = {
    "LoraConfig": _read_lora,
    "BitsAndBytesConfig": _read_bits_and_bytes_config,
    "from_pretrained": _read_from_pretrained_arguments,
    "train": _read_arguments_of_trainer_train,
    "ModelConfig": _read_model_config,
}
"""Calls beside that of the arguments"""
