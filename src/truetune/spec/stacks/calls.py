"""Calls in a Python program, as a Config: `SFTConfig(...)`, `LoraConfig(...)`, `from_pretrained(...)`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from truetune.spec.config import Config, Place
from truetune.spec.stacks.draft import Draft, on
from truetune.spec.stacks.facts import facts
from truetune.spec.stacks.shared import indices
from truetune.spec.stacks.transformers import METHODS, arguments, defaults, pretrained, quantized

LORA = (
    "r",
    "lora_alpha",
    "lora_dropout",
    "target_modules",
    "modules_to_save",
    "trainable_token_indices",
    "use_rslora",
    "use_dora",
    "init_lora_weights",
)


class Call(NamedTuple):
    """One call with the values of its arguments; UNKNOWN where a value is not a constant."""

    name: str
    """`SFTConfig`, `LoraConfig`, `from_pretrained`"""
    arguments: Mapping[str, Any]
    places: Mapping[str, Place] = {}
    complete: bool = True
    """No `**kwargs` whose content is not known: what is not given has its default."""


def config_of_arguments(
    class_name: str, arguments: Mapping[str, Any], places: Mapping[str, Place], path: str, text: str
) -> Config:
    """One call as a Config. Raises SpecError for a value that its field does not take."""
    return config_of_calls([Call(class_name, arguments, places)], path, text)


def config_of_calls(calls: Iterable[Call], path: str, text: str) -> Config:
    """The calls of one run as a Config; of several calls of one name, the last counts; other names are left alone.

    Raises SpecError for a value that its field does not take.
    """
    by_name = {call.name: call for call in calls}
    trainer = next((name for name in by_name if name in METHODS), None)
    of_trl = trainer in facts("trl").classes
    package = "trl" if of_trl else "transformers"
    draft = _draft(by_name[trainer] if trainer else Call("", {}), package, path, text)
    known: set[str] = set()
    limit = None
    if trainer is not None:
        known = set(defaults(trainer))
        draft.defaults = defaults(trainer) if by_name[trainer].complete else {}
        limit = arguments(draft, trainer)
    raw, where = dict(draft.values), dict(draft.where)
    unknown = {key for key in draft.values if key not in known}
    for name, reader in PARTS.items():
        if name in by_name:
            part = _draft(by_name[name], package, path, text)
            reader(part, by_name[name].complete)
            draft.fields |= part.fields
            draft.places |= part.places
            raw |= {f"{name}.{key}": value for key, value in part.values.items()}
            where |= {f"{name}.{key}": place for key, place in part.where.items()}
            if name == "LoraConfig":
                unknown |= {
                    f"{name}.{key}"
                    for key in part.values
                    if key not in facts("peft").classes["LoraConfig"]
                }
    draft.raw, draft.where = raw, where
    return draft.config(raw.keys() - unknown, limit, ("transformers", "trl"))


def _draft(call: Call, package: str, path: str, text: str) -> Draft:
    stack: Any = package
    return Draft(stack, facts(package).release, path, dict(call.arguments), call.places, text=text)


def _lora(draft: Draft, complete: bool) -> None:
    draft.defaults = facts("peft").classes["LoraConfig"] if complete else {}
    draft.fields["training.lora"] = {}
    for key in LORA:
        draft.take(
            f"training.lora.{key}",
            key,
            made=indices if key == "trainable_token_indices" else _as_it_is,
        )
    if draft.where:
        draft.places["training.lora"] = next(iter(draft.where.values()))


def _as_it_is(value: Any) -> Any:
    return sorted(value) if isinstance(value, (set, frozenset)) else value


def _quantized(draft: Draft, complete: bool) -> None:
    quantized(draft)


def _pretrained(draft: Draft, complete: bool) -> None:
    pretrained(draft)
    name = draft.folder(draft.get("pretrained_model_name_or_path"))
    draft.put("tokenizer", name, "pretrained_model_name_or_path")
    draft.put("model", name, "pretrained_model_name_or_path")


def _train(draft: Draft, complete: bool) -> None:
    draft.take("training.resume_from_checkpoint", "resume_from_checkpoint")


def _model_config(draft: Draft, complete: bool) -> None:
    draft.defaults = facts("trl").classes["ModelConfig"] if complete else {}
    pretrained(draft)
    if on(draft.get("use_peft")):
        draft.fields["training.lora"] = {}


PARTS: Mapping[str, Callable[[Draft, bool], None]] = {
    "LoraConfig": _lora,
    "BitsAndBytesConfig": _quantized,
    "from_pretrained": _pretrained,
    "train": _train,
    "ModelConfig": _model_config,
}
"""Calls beside that of the arguments"""
