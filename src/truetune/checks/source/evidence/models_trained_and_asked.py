"""Finds which models the scripts of a project train, which folders they write, and which models
they load to ask, by symbolic runs.

The trade-off: only plain names count. A script of which one name is not known says nothing.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from truetune.checks.source.evidence.prompt_forms import scripts_beside, trains_a_model
from truetune.checks.source.evidence.trainer_settings_given import (
    arguments_of_trainer,
    value_of_setting,
)
from truetune.source.parsed_source_file import Module
from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.run_scripts_and_keep_traces import (
    traces_of_scripts_that_reach_file,
)
from truetune.source.symbolic_execution.trace_back_to_load import lineages_back_to_origins
from truetune.source.symbolic_execution.trace_of_events import CallEvent, Trace
from truetune.source.symbolic_execution.values_of_run import Mapping, Value

TRAINERS = ("transformers.*Trainer", "trl.*Trainer", "unsloth.*Trainer")
MODEL_LOADS = (
    "transformers.AutoModelForCausalLM.from_pretrained",
    "transformers.*ForCausalLM.from_pretrained",
    "transformers.*LMHeadModel.from_pretrained",
    "unsloth.*.from_pretrained",
)
NAME_OF_LOAD = ("pretrained_model_name_or_path", "model_name")
ENGINES = {"vllm.LLM": (0, "model"), "lm_eval.models.*.HFLM": (0, "pretrained")}
"""Call -> place and name of its argument that names a model which is asked"""
HARNESS = ("lm_eval.simple_evaluate", "lm_eval.evaluator.simple_evaluate")
ADAPTER_KEYS = ("peft", "delta", "lora_local_path")
SAVES = {
    "save_pretrained": (0, "save_directory"),
    "save_model": (0, "output_dir"),
    "save_pretrained_merged": (0, "save_directory"),
}


@dataclass(frozen=True, slots=True)
class TrainedModels:
    """What a script trains, and where it leaves it."""

    path: str
    bases: frozenset[str]
    outputs: frozenset[str]
    node: ast.AST


@dataclass(frozen=True, slots=True)
class AskedModels:
    """The models that a script loads to ask them."""

    names: dict[str, ast.AST]
    """Name -> what loads it"""


def trainings_in_other_project_scripts(module: Module) -> Iterator[tuple[Module, TrainedModels]]:
    """The trainings of other scripts of the project, in the same group of files or beside the file."""
    for other in scripts_beside(module):
        if trains_a_model(other):
            found = trained_models(other)
            if found is not None:
                yield other, found


def trained_models(module: Module) -> TrainedModels | None:
    """What a script trains; None where it trains nothing, or a name is not known."""
    for trace in traces_of_scripts_that_reach_file(module):
        for trainer in trace.calls(*TRAINERS):
            if trainer.home.path == module.path:
                return _training_of_trainer(module, trace, trainer)
    return None


def _training_of_trainer(module: Module, trace: Trace, trainer: CallEvent) -> TrainedModels | None:
    """The model of one trainer, and the folders that its run writes."""
    base = _name_of_loaded_model(trainer.argument(0, "model"))
    outputs = set(_model_folders_written(trace))
    arguments = arguments_of_trainer(trainer)
    if arguments is not None:
        folder = value_of_setting(arguments, "output_dir")
        if folder is None and arguments.call.args:
            folder = arguments.call.args[0]
        outputs.add(_plain_text(folder))
    outputs.discard("")
    if not base or not outputs:
        return None
    return TrainedModels(module.path, frozenset((base,)), frozenset(outputs), trainer.node)


def _name_of_loaded_model(value: Value | None) -> str:
    """The name that a model was loaded by; empty where it is not known, or may be one of several."""
    if value is None:
        return ""
    plain = constant_of(value)
    if isinstance(plain, str):
        return plain
    loads = [way.call_that_gave_origin for way in lineages_back_to_origins(value)]
    if len(loads) != 1 or loads[0] is None:
        return ""
    return _plain_text(_model_name_argument(loads[0]))


def _model_name_argument(load: CallEvent) -> Value | None:
    """What names the model in a call that loads one."""
    return next(
        (load.keywords[name] for name in NAME_OF_LOAD if name in load.keywords),
        load.args[0] if load.args else None,
    )


def _model_folders_written(trace: Trace) -> Iterator[str]:
    """The folders that a run saves models to."""
    for name, (position, argument) in SAVES.items():
        for call in trace.methods(name):
            yield _plain_text(call.argument(position, argument))


def _plain_text(value: Value | None) -> str:
    """The plain text that a value is; empty where it is none."""
    plain = constant_of(value)
    return plain.removesuffix("/") if isinstance(plain, str) else ""


def models_loaded_without_adapter(module: Module) -> AskedModels | None:
    """The models that a script loads; None where it loads an adapter, or a name is not known."""
    names: dict[str, ast.AST] = {}
    for trace in traces_of_scripts_that_reach_file(module):
        if trace.entry.path != module.path:
            continue
        for call, name in _model_load_calls_with_names(trace):
            if call.home.path != module.path or not name:
                return None
            names.setdefault(name, call.node)
    return AskedModels(names)


def _model_load_calls_with_names(trace: Trace) -> Iterator[tuple[CallEvent, str]]:
    """The calls of a run that load what is asked, each with the name; empty where that is not
    known.
    """
    for call in trace.calls(*MODEL_LOADS):
        yield call, _plain_text(_model_name_argument(call))
    for pattern, (position, argument) in ENGINES.items():
        for call in trace.calls(pattern):
            has_adapter = any(name in call.keywords for name in ADAPTER_KEYS) or call.is_open
            yield call, "" if has_adapter else _plain_text(call.argument(position, argument))
    for call in trace.calls("transformers.pipeline"):
        model = call.argument(1, "model")
        # A model that was loaded before is counted there.
        if isinstance(constant_of(model), str):
            yield call, _plain_text(model)
    for call in trace.calls(*HARNESS):
        model_args_argument = call.argument(1, "model_args")
        if model_args_argument is not None:
            yield call, _pretrained_in_harness_arguments(model_args_argument)


def _pretrained_in_harness_arguments(given: Value) -> str:
    """The model's name (`pretrained`) in the arguments of the evaluation harness, as a text or a
    dictionary; empty beside an adapter.
    """
    if isinstance(given, Mapping):
        if given.is_open or any(key in given.entries for key in ADAPTER_KEYS):
            return ""
        return _plain_text(given.entries.get("pretrained"))
    parts = dict(part.partition("=")[::2] for part in _plain_text(given).split(","))
    return "" if any(key in parts for key in ADAPTER_KEYS) else parts.get("pretrained", "")
