"""TRL: the YAML of its command line, and of scripts that use TrlParser."""

from __future__ import annotations

from functools import cache
from typing import Any

from truetune.spec.config import Config
from truetune.spec.located import Located
from truetune.spec.pins import pins_around
from truetune.spec.releases import major
from truetune.spec.stacks.datasets import Rows, give, located
from truetune.spec.stacks.document import draft_of
from truetune.spec.stacks.draft import Draft, near, on
from truetune.spec.stacks.facts import RENAMED, facts
from truetune.spec.stacks.transformers import METHODS, arguments, defaults, learned, pretrained

CLASSES = (
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
COMMON = ("ModelConfig", "ScriptArguments", "DatasetMixtureConfig")
OF_SCRIPT = {"GRPOConfig": ("GRPOScriptArguments",), "RLOOConfig": ("RLOOScriptArguments",)}
"""What a trainer's own script merges with these"""
SCRIPTS = frozenset(("dataset_mixture", "dataset_mixer", "dataset_splits"))
"""Keys of scripts with settings of their own that no other stack has"""
OLD = frozenset(("torch_dtype",))
"""Keys of earlier releases, likewise"""
SIGNS = {
    "SFTConfig": frozenset(("max_seq_length", "dataset_batch_size")),
    "DPOConfig": frozenset(("max_prompt_length", "ref_model_init_kwargs", "rpo_alpha")),
    "KTOConfig": frozenset(("desirable_weight", "undesirable_weight")),
    "GRPOConfig": frozenset(("num_generations", "max_completion_length")),
}
"""Keys, of this release or an earlier one, that speak for one trainer"""


@cache
def launch() -> frozenset[str]:
    """Keys that the command line takes itself, or hands to `accelerate launch`."""
    return frozenset(
        ("env", "config", "accelerate_config", *facts("trl").classes["accelerate launch"])
    )


@cache
def keys() -> frozenset[str]:
    """All keys that tell a TRL YAML: of this release, of earlier ones, and of scripts that read TRL's and their own."""
    known = {*defaults("SFTConfig"), *launch(), *RENAMED["trl"], *SCRIPTS, *OLD}
    scripts = (name for names in OF_SCRIPT.values() for name in names)
    return frozenset(
        known.union(*(facts("trl").classes[name] for name in (*CLASSES, *COMMON, *scripts)))
    )


@cache
def _merged(name: str) -> dict[str, Any]:
    """The keys and defaults of all that the script of a trainer's class merges."""
    made = defaults(name)
    for part in (*COMMON, *OF_SCRIPT.get(name, ())):
        made |= facts("trl").classes[part]
    return made


def kind_of(document: Located) -> tuple[str, bool]:
    """The trainer's class, and whether the keys leave no other."""
    given = set(document.value)
    base = set(facts("transformers").classes["TrainingArguments"]).union(
        *(facts("trl").classes[name] for name in COMMON)
    )
    own = {name: set(_merged(name)) - base | SIGNS.get(name, frozenset()) for name in CLASSES}
    scores = {
        name: len(given & own[name]) + len(given & SIGNS.get(name, frozenset())) for name in CLASSES
    }
    stem = document.path.rpartition("/")[2].lower()
    best = max(scores.values())
    equal = [name for name in CLASSES if scores[name] == best]
    named = next((name for name in equal if name.removesuffix("Config").lower() in stem), equal[0])
    return named, len(equal) == 1


def read(document: Located, trainer: str = "") -> Config:
    """A YAML file of TRL; `trainer` is the class of its settings, where the command that reads them says it."""
    name, sure = (trainer, True) if trainer else kind_of(document)
    known = _merged(name)
    pins = pins_around(document.path)
    older = pins.before("trl", major(facts("trl").release))
    draft = draft_of(
        document, "trl", facts("trl").release, {} if older else known, {*known, *launch()}
    )
    draft.pins = pins
    draft.notes.append(
        f"read as the settings of {name} ({METHODS[name]})"
        + ("" if sure else ", because no key speaks for another")
    )
    limit = arguments(draft, name)
    pretrained(draft)
    model = draft.folder(draft.get("model_name_or_path"))
    draft.put("tokenizer", model, "model_name_or_path")
    draft.put("model", model, "model_name_or_path")
    draft.take("training.devices", "num_processes")
    if on(draft.get("use_peft")):
        _lora(draft)
    give(draft, _data(draft), "dataset_name", "datasets")
    if name == "SFTConfig":
        learned(draft)
    template = draft.get("chat_template_path")
    if (
        isinstance(template, str)
        and (found := draft.find(template)) is not None
        and found.is_file()
    ):
        draft.put("template", str(found), "chat_template_path")
    own = [
        key
        for key in document.value
        if key in SCRIPTS or (key not in keys() and near(str(key), keys()) is None)
    ]
    draft.own_keys = bool(own)
    if own:
        draft.notes.append(
            "TRL-like, with keys of its own"
            f" ({', '.join(map(str, own[:6]))}{', ...' if len(own) > 6 else ''}): a script that"
            " merges them with TRL's reads it"
        )
    return draft.config({*known, *launch()}, limit, ("transformers", "trl"))


def _lora(draft: Draft) -> None:
    draft.put("training.lora", {}, "use_peft")
    for field, key in (
        ("r", "lora_r"),
        ("lora_alpha", "lora_alpha"),
        ("lora_dropout", "lora_dropout"),
        ("target_modules", "lora_target_modules"),
        ("modules_to_save", "lora_modules_to_save"),
        ("use_rslora", "use_rslora"),
        ("use_dora", "use_dora"),
    ):
        draft.take(
            f"training.lora.{field}",
            key,
            made=_targets if field == "target_modules" else lambda value: value,
        )


def _targets(value: Any) -> Any:
    return (
        value[0]
        if isinstance(value, list) and len(value) == 1 and value[0] == "all-linear"
        else value
    )


def _data(draft: Draft) -> list[Rows]:
    found = []
    name = draft.get("dataset_name")
    if isinstance(name, str):
        found.append(Rows(name, located(draft, name)))
    several = draft.get("datasets")
    for given in several if isinstance(several, list) else ():
        if isinstance(given, dict) and isinstance(given.get("path"), str):
            path = given["path"]
            found.append(
                Rows(path, located(draft, path, given.get("data_files"), given.get("data_dir")))
            )
    return found
