"""The settings that a script gives to trainers, LoRA and models, as a Config."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import Any

from truetune.source.calls import Call
from truetune.source.module import Module
from truetune.source.prepared import cuts_rows
from truetune.source.values import UNKNOWN
from truetune.spec import stacks
from truetune.spec.config import Config, Place
from truetune.spec.releases import major
from truetune.spec.stacks.facts import facts
from truetune.spec.stacks.transformers import METHODS

PARTS = {
    "LoraConfig": ("peft.LoraConfig",),
    "BitsAndBytesConfig": ("transformers.BitsAndBytesConfig",),
    "from_pretrained": ("transformers.AutoModel*.from_pretrained", "transformers.*For*LM.from_pretrained"),
}
OF_SEQ2SEQ = frozenset(
    ("predict_with_generate", "generation_max_length", "generation_num_beams", "generation_config", "sortish_sampler")
)
"""Settings of `Seq2SeqTrainingArguments` alone, which are about evaluation"""


def configs_of_source(module: Module) -> tuple[Config, ...]:
    """One Config for each call of a trainer's arguments (`SFTConfig`, `TrainingArguments`, ...) in the file.

    `LoraConfig`, `BitsAndBytesConfig`, the model's `from_pretrained` and `trainer.train` belong to it where the file
    holds one of each; any other use of peft counts as an adapter of which nothing is known. Raises SpecError for a
    value that its field does not take.
    """
    trainers = [(call, name) for call in module.all_calls if (name := _trainer(call))]
    parts = {name: list(module.calls(*patterns)) for name, patterns in PARTS.items()}
    parts["train"] = [call for call in module.methods("train") if "trainer" in module.flow.kinds(call.receiver)]
    beside = [_laid_out(module, calls[0], name) for name, calls in parts.items() if len(calls) == 1]
    if len(parts["LoraConfig"]) != 1 and any(module.calls("peft.*", "unsloth.*.get_peft_model")):
        beside.append(stacks.Call("LoraConfig", {}, complete=False))
    if not trainers:
        return ()
    pins = module.pins
    older = {stack for stack in ("trl", "transformers") if pins.before(stack, major(facts(stack).release))}
    found = []
    for call, name in trainers:
        own = [part for part in beside if part.name != "LoraConfig" or not _without_adapter(module, call)]
        laid_out = [_laid_out(module, call, name, older=bool(older)), *own]
        config = stacks.config_of_calls(laid_out, module.path, module.file_text)
        limit = config.limit if "max_length" in config.places or cuts_rows(module, call) else None
        found.append(replace(config, pins=pins, limit=limit))
    return tuple(found)


def _without_adapter(module: Module, arguments: Call) -> bool:
    """Do the trainers of these arguments certainly train no adapter, whatever others of the file do?"""
    trainers = [
        trainer
        for trainer in module.calls("trl.*Trainer", "transformers.*Trainer")
        if module.flow.made(trainer.argument(1, "args")) is arguments
    ]
    return bool(trainers) and all(
        trainer.lacks("peft_config") and _is_plain_model(module, trainer.argument(0, "model")) for trainer in trainers
    )


def _is_plain_model(module: Module, model: ast.expr | None) -> bool:
    """Is it the name of a model, or one that is loaded and wrapped by nothing?"""
    if isinstance(module.flow.value(model), str):
        return True
    made = module.flow.made(model)
    return made is not None and made.named("transformers.*.from_pretrained", "transformers.*.from_config")


def config_of_source(module: Module) -> Config | None:
    """The one that the file holds; None where there is none, or more than one."""
    configs = configs_of_source(module)
    return configs[0] if len(configs) == 1 else None


def _trainer(call: Call) -> str | None:
    for name in call.names:
        package, _, last = name.rpartition(".")
        if package in ("trl", "transformers") and last in METHODS:
            return last
    return None


def _laid_out(module: Module, call: Call, name: str, *, older: bool = False) -> stacks.Call:
    """`older`: a release is asked for whose defaults are not known."""
    arguments: dict[str, Any] = {}
    places: dict[str, Place] = {}
    given = dict(call.keywords)
    first = {"from_pretrained": "pretrained_model_name_or_path", "train": "resume_from_checkpoint"}.get(name)
    if call.args and not isinstance(call.args[0], ast.Starred):
        given.setdefault(first or "output_dir", call.args[0])
    for key, node in given.items():
        if name.startswith("Seq2Seq") and key in OF_SEQ2SEQ:
            continue
        value = _plain(module, node)
        arguments[key] = stacks.UNKNOWN if value is UNKNOWN else value
        line, column = module.place(node)
        places[key] = Place(module.path, line, key, column)
    return stacks.Call(name, arguments, places, complete=not call.open and not older)


def _plain(module: Module, node: ast.expr) -> Any:
    """A constant; a dtype by its name; UNKNOWN."""
    value = module.flow.value(node)
    if value is UNKNOWN and (name := module.flow.name(node)) and name.startswith("torch."):
        return name.removeprefix("torch.")
    return value if _known(value) else UNKNOWN


def _known(value: Any) -> bool:
    return value is None or isinstance(value, (bool, int, float, str, list, tuple, dict, frozenset))
