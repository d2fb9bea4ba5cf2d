"""Readers of the settings of truetune, TRL, transformers, Axolotl and LLaMA-Factory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from os import PathLike
from pathlib import Path

from truetune.errors import SpecError, name_list
from truetune.spec import located
from truetune.spec.config import Config, Place, Stack
from truetune.spec.files import CONFIG
from truetune.spec.located import Located
from truetune.spec.run import RunSpec
from truetune.spec.stacks import axolotl, llama_factory, own, trl
from truetune.spec.stacks.calls import Call, config_of_arguments, config_of_calls
from truetune.spec.stacks.draft import UNKNOWN

__all__ = ["UNKNOWN", "Call", "config_of_arguments", "config_of_calls", "read_config", "stack_of"]

READERS: Mapping[Stack, Callable[[Located], Config]] = {
    "truetune": own.read,
    "axolotl": axolotl.read,
    "llama-factory": llama_factory.read,
    "trl": trl.read,
}
OWN = frozenset(RunSpec.model_fields)
FOREIGN: Mapping[str, frozenset[str]] = {
    "an accelerate launch configuration": frozenset(("compute_environment", "distributed_type")),
    "a DeepSpeed configuration": frozenset(("zero_optimization", "train_micro_batch_size_per_gpu")),
    "a model's config.json": frozenset(("architectures", "transformers_version")),
    "settings of LLaMA-Factory's v1 form": frozenset(("dist_config", "quant_config", "model_class")),
    "a torchtune recipe": frozenset(("checkpointer", "_component_")),
}
"""What is no run's settings, and keys that tell it"""


def read_config(path: str | PathLike[str]) -> Config:
    """The settings in a YAML or JSON file of any stack that truetune knows; of a folder, its truetune.yaml.

    Raises SpecError where the file is broken, or is of none of them.
    """
    path = Path(path) / CONFIG if Path(path).is_dir() else Path(path)
    if path.suffix == ".toml":
        return own.read(Located(str(path), located.text_of(path), {}, {}))
    document = located.read(path)
    stack = stack_of(document.value)
    if stack is None:
        raise SpecError(
            f"{path}: found {_found(document.value)}; expected the settings of truetune, TRL, "
            "Axolotl (base_model, datasets) or LLaMA-Factory (stage, model_name_or_path, dataset)"
        )
    config = READERS[stack](document)
    repeated = tuple(
        (_place(document, twice.keys, twice.first), _place(document, twice.keys, twice.second))
        for twice in document.twice
    )
    also = [other for other in _fitting(document.value) if other != stack]
    notes = (f"read as settings of {stack}; the keys are also {' and '.join(also)}'s",) if also else ()
    return replace(config, repeated=repeated, notes=(*notes, *config.notes))


def stack_of(value: object) -> Stack | None:
    """Whose settings these are, by the keys that only one stack knows; None where it cannot be told."""
    return next(iter(_fitting(value)), None)


def _fitting(value: object) -> tuple[Stack, ...]:
    """The stacks that the keys fit equally well, and best."""
    if not isinstance(value, dict) or not value or foreign(value) is not None:
        return ()
    given = {str(key) for key in value}
    own = set() if _holds_rows(value) else {key.replace("-", "_") for key in given} & OWN
    if len(own) == len(given):
        return ("truetune",)
    known: Mapping[Stack, frozenset[str]] = {
        "trl": trl.keys(), "axolotl": axolotl.keys(), "llama-factory": llama_factory.keys(),
    }  # fmt: skip
    scores: dict[Stack, int] = {
        "truetune": 3 * len(own.difference(*known.values())) if len(own) * 2 >= len(given) else 0
    }
    for stack, keys in known.items():
        others = frozenset().union(*(other for name, other in known.items() if name != stack))
        if 2 * len(given & keys) >= len(given):
            scores[stack] = len(given & keys) + 2 * len(given & (keys - others))
    best = max(scores.values())
    return tuple(stack for stack, score in scores.items() if score == best > 0)


def _holds_rows(value: dict[object, object]) -> bool:
    data = value.get("data")
    return isinstance(data, list) and any(isinstance(item, dict) for item in data)


def foreign(value: object) -> str | None:
    """What a file is that is no run's settings, by its keys."""
    given = {str(key) for key in value} if isinstance(value, dict) else set()
    return next((name for name, keys in FOREIGN.items() if given & keys), None)


def _found(value: object) -> str:
    if (name := foreign(value)) is not None:
        return name
    keys = name_list(value, empty="") if isinstance(value, dict) else ""
    return f"the keys {keys}" if keys else "nothing" if value is None else "no settings by name"


def _place(document: Located, keys: located.Keys, spot: located.Spot) -> Place:
    return Place(document.path, spot.line, ".".join(map(str, keys)), spot.column)
