"""Known keys and defaults of a stack, written down from its own package.

    python -m tests.settings.stack_facts STACK > src/truetune/settings/stacks/STACK.json

runs where that package is installed; STACK is transformers, trl, peft, axolotl or llama-factory.
"""

from __future__ import annotations

import dataclasses
import enum
import importlib
import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

TRL_CLASSES = (
    "SFT",
    "DPO",
    "KTO",
    "Reward",
    "GRPO",
    "RLOO",
    "Distillation",
    "Model",
    "DatasetMixture",
)
TRL_SCRIPTS = ("sft", "dpo", "kto", "reward", "grpo", "rloo", "distillation")
"""Each merges several dataclasses into one set of keys: those of its own too"""
TRL_EXPERIMENTAL = {
    "ORPOConfig": "orpo",
    "CPOConfig": "cpo",
    "OnlineDPOConfig": "online_dpo",
    "GKDConfig": "gkd",
}
LAUNCH = "accelerate launch"
"""Where TRL's command line sends the keys that no class of its own has"""
LLAMA_FACTORY_CLASSES = {
    "model_args": "ModelArguments",
    "data_args": "DataArguments",
    "training_args": "TrainingArguments",
    "finetuning_args": "FinetuningArguments",
    "generating_args": "GeneratingArguments",
}
AXOLOTL_DATASETS = (
    "SFTDataset",
    "DPODataset",
    "KTODataset",
    "StepwiseSupervisedDataset",
    "PretrainingDataset",
    "SyntheticDataset",
)


def plain(value: Any) -> Any:
    """A default as JSON holds it; null where it is an object, or none is given."""
    if isinstance(value, enum.Enum):
        return plain(value.value)
    if isinstance(value, (list, tuple, set)):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    return value if isinstance(value, (str, int, float, bool)) else None


def fields(kind: Any) -> dict[str, Any]:
    """The keys and defaults of a dataclass."""

    def default(field: dataclasses.Field[Any]) -> Any:
        if field.default_factory is not dataclasses.MISSING:
            return plain(field.default_factory())
        return plain(field.default)

    return {field.name: default(field) for field in dataclasses.fields(kind) if field.init}


def beyond(kind: Any, base: dict[str, Any]) -> dict[str, Any]:
    """What a class adds to its base, or sets to something else."""
    return {
        name: value
        for name, value in fields(kind).items()
        if name not in base or base[name] != value
    }


def transformers() -> dict[str, Any]:
    package = importlib.import_module("transformers")
    base = fields(package.TrainingArguments)
    return {
        "TrainingArguments": base,
        "Seq2SeqTrainingArguments": beyond(package.Seq2SeqTrainingArguments, base),
    }


def trl() -> dict[str, Any]:
    package = importlib.import_module("trl")
    base = fields(importlib.import_module("transformers").TrainingArguments)
    kinds = {f"{name}Config": getattr(package, f"{name}Config") for name in TRL_CLASSES}
    for name, folder in TRL_EXPERIMENTAL.items():
        kinds[name] = getattr(importlib.import_module(f"trl.experimental.{folder}"), name)
    for script in TRL_SCRIPTS:
        parser = importlib.import_module(f"trl.scripts.{script}").make_parser()
        kinds |= {
            kind.__name__: kind for kind in parser.dataclass_types if kind.__name__ not in kinds
        }
    launch = importlib.import_module("accelerate.commands.launch").launch_command_parser()
    options = {action.dest for action in launch._actions if action.option_strings} - {
        "help",
        "config_file",
        *base,
    }
    return {name: beyond(kind, base) for name, kind in kinds.items()} | {
        LAUNCH: dict.fromkeys(sorted(options))
    }


def peft() -> dict[str, Any]:
    return {"LoraConfig": fields(importlib.import_module("peft").LoraConfig)}


def axolotl() -> dict[str, Any]:
    schemas = importlib.import_module("axolotl.utils.schemas.config")
    datasets = importlib.import_module("axolotl.utils.schemas.datasets")
    whole = _model(schemas.AxolotlInputConfig)
    always = importlib.import_module("axolotl.integrations.base").BUILTIN_PLUGINS
    built_in: dict[str, Any] = {}
    plugins: dict[str, Any] = {}
    for kind in _plugin_arguments():
        package = kind.__module__.removesuffix(".args")
        (built_in if any(name.startswith(f"{package}.") for name in always) else plugins).update(
            _model(kind)
        )
    rows = [getattr(datasets, name) for name in AXOLOTL_DATASETS if hasattr(datasets, name)]
    return {
        "AxolotlInputConfig": whole,
        "built in": {name: value for name, value in built_in.items() if name not in whole},
        "plugins": {name: value for name, value in plugins.items() if name not in whole},
        "dataset": dict.fromkeys(sorted({name for kind in rows for name in kind.model_fields})),
    }


def _model(kind: Any) -> dict[str, Any]:
    """The keys (by the name that a file uses) and defaults of a pydantic model."""
    found: dict[str, Any] = {}
    for name, field in kind.model_fields.items():
        made = field.default_factory() if field.default_factory is not None else field.default
        found |= dict.fromkeys([name, field.alias or name], plain(made))
    return found


def _plugin_arguments() -> list[Any]:
    """The models of the settings that Axolotl's own plugins add: each `args.py`, read by itself, because a plugin's
    package needs what the plugin is for."""
    pydantic = importlib.import_module("pydantic")
    folder = Path(importlib.import_module("axolotl.integrations").__path__[0])
    kinds = []
    for path in sorted(folder.glob("*/args.py")):
        spec = importlib.util.spec_from_file_location(
            f"axolotl.integrations.{path.parent.name}.args", path
        )
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        kinds += [
            value
            for name, value in vars(module).items()
            if isinstance(value, type)
            and issubclass(value, pydantic.BaseModel)
            and value.__module__ == spec.name
            and (name.endswith("Args") or name == "SwanLabConfig")
        ]
    return kinds


def llama_factory() -> dict[str, Any]:
    return {
        name: fields(getattr(importlib.import_module(f"llamafactory.hparams.{module}"), name))
        for module, name in LLAMA_FACTORY_CLASSES.items()
    } | {
        "RayArguments": fields(
            importlib.import_module("llamafactory.hparams.training_args").RayArguments
        )
    }


STACKS = {
    "transformers": ("transformers", transformers),
    "trl": ("trl", trl),
    "peft": ("peft", peft),
    "axolotl": ("axolotl", axolotl),
    "llama-factory": ("llamafactory", llama_factory),
}


def facts(stack: str) -> dict[str, Any]:
    """What the JSON file of a stack holds: its release, and the keys and defaults of each of its classes."""
    package, classes = STACKS[stack]
    return {"release": importlib.import_module(package).__version__, "classes": classes()}


if __name__ == "__main__":
    print(json.dumps(facts(sys.argv[1]), indent=1, ensure_ascii=False))
