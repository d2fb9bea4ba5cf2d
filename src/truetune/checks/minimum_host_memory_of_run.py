"""What a run needs at least of the machine's own memory (not the GPU's): optimizer states that are
put there, and weights that are loaded.

Only lower bounds are counted, so that "more than the job has" is a fact.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from truetune.checks.read_settings_in_launch_files import LaunchFiles
from truetune.checks.source.evidence.trace_answering_models_to_load import is_float32_by_default
from truetune.errors import TruetuneError
from truetune.logs.facts_in_files_beside_log import (
    ADAPTED_BASE,
    LOADED_IN_FLOAT32,
    STATES_GIB,
    SettingBeside,
)
from truetune.memory.matrices_and_parameters_from_config import parse_architecture
from truetune.memory.published_model_shapes import published_config
from truetune.parsing.input_limits import SETTINGS
from truetune.parsing.parse_json_within_limits import read_json
from truetune.settings.config import Config
from truetune.source.parsed_source_file import Module, read_module
from truetune.source.settings_of_script_as_configs import (
    extract_configs,
    find_only_plainly_named_model,
)

BYTES_OF_STATES = 12
"""The least that Adam keeps of a trained weight on the CPU: the weight and two moments in float32
(deepspeed/ops/adam/cpu_adam.py, deepspeed/runtime/zero/stage3.py). Gradients, and buffers of pinned memory, come on
top: DeepSpeed's own estimate (estimate_zero3_model_states_mem_needs) is 16 to 18 bytes"""
ROOM_FOR_THE_REST = 2
"""Times the states: gradients, buffers, weights while they are loaded, and the processes. Chosen: these 24 bytes a
weight are a third more than DeepSpeed's own estimate"""
GIB = 1 << 30
ADAPTERS = ("peft", "lora")
"""Each script that trains an adapter has one of these words"""
ADAPTER_FILE = "adapter_config.json"
LOADS = ("transformers.AutoModel*.from_pretrained", "peft.AutoPeftModel*.from_pretrained")
MODEL_OPTIONS = ("model_name_or_path", "model_name", "model_id", "base_model", "model")


class TrainedModel(NamedTuple):
    """A model all of whose weights are trained."""

    name: str
    parameters: int

    @property
    def optimizer_states_gib(self) -> float:
        """GiB of the states of its optimizer, at least."""
        return self.parameters * BYTES_OF_STATES / GIB


def parameters_of_published_model(name: str) -> int | None:
    """The parameters of a published model; None where its shape is not known."""
    published = published_config(name)
    try:
        return parse_architecture(published).parameters if published is not None else None
    except TruetuneError:
        return None


def host_memory_gib_to_request(states_gib: float) -> float:
    """GiB of a machine's memory that hold the states of an optimizer, and what else a run needs there."""
    return ROOM_FOR_THE_REST * states_gib


def fully_trained_model_of_config(config: Config) -> TrainedModel | None:
    """The model of a run that trains all of its weights by Adam; None elsewhere, and where it is not known."""
    training, name = config.spec.training, config.spec.model
    if not name or training.load_in is not None or training.lora is not None:
        return None
    if training.adapter or (training.optim is not None and "adam" not in training.optim.lower()):
        return None
    parameters = parameters_of_published_model(name)
    return TrainedModel(name, parameters) if parameters is not None else None


def fully_trained_model_of_launch(launch: LaunchFiles) -> TrainedModel | None:
    """The model that a launch trains whole; None where it trains an adapter, or nothing says which it is."""
    if _names_adapter(" ".join(launch.command.words)) or launch.settings is not None:
        return None
    located_value = launch.script_option_value(*MODEL_OPTIONS)
    name = str(located_value.value) if located_value is not None else ""
    if launch.script is None:
        return _trained_model_by_name(name)
    try:
        return _fully_trained_model_of_script(read_module(launch.script), name)
    except (TruetuneError, OSError, ValueError):
        return None


def _fully_trained_model_of_script(module: Module, name: str) -> TrainedModel | None:
    """The model that a script trains whole, by its settings.

    Without settings, the model called `name`, else the one that the script names. None if it trains
    an adapter.
    """
    if _names_adapter(module.text):
        return None
    config = next(iter(extract_configs(module)), None)
    if config is not None:
        return fully_trained_model_of_config(config)
    return _trained_model_by_name(name or find_only_plainly_named_model(module) or "")


def _names_adapter(text: str) -> bool:
    """Does a script or a command name an adapter? Then few weights have states."""
    return any(word in text.lower() for word in ADAPTERS)


def _trained_model_by_name(name: str) -> TrainedModel | None:
    """The model of that name, where its size is known; None for an empty one."""
    if not name:
        return None
    parameters = parameters_of_published_model(Path(name).as_posix())
    return TrainedModel(name, parameters) if parameters is not None else None


def optimizer_states_of_config(config: Config) -> Iterator[SettingBeside]:
    """GiB of the optimizer's states for the model of a run that trains all of its weights."""
    model = fully_trained_model_of_config(config)
    if model is not None:
        yield SettingBeside(
            STATES_GIB, round(model.optimizer_states_gib, 1), config.path, 0, model.name
        )


def optimizer_states_of_script(
    module: Module, configs: Sequence[Config]
) -> Iterator[SettingBeside]:
    """GiB of the optimizer's states for the model of a script that trains all of its weights and
    names no adapter.
    """
    if not _names_adapter(module.text):
        for config in configs:
            yield from optimizer_states_of_config(config)


def loads_in_default_float32(module: Module) -> Iterator[SettingBeside]:
    """The loads of a model without a dtype, under a transformers release that then takes float32."""
    for call in module.calls(*LOADS):
        if not is_float32_by_default(module, call):
            continue
        name = module.flow.value(call.argument(0, "pretrained_model_name_or_path"))
        line, _ = module.place(call.node)
        text = f"from_pretrained without a dtype ({module.pins.describe_asked_release('transformers')})"
        value = name if isinstance(name, str) else ""
        yield SettingBeside(LOADED_IN_FLOAT32, value, module.home(call.node).path, line, text)


def base_of_saved_adapter(file: Path) -> Iterator[SettingBeside]:
    """The base that the file of a saved adapter names."""
    value = read_json(file, SETTINGS)
    name = value.get("base_model_name_or_path") if isinstance(value, dict) else None
    if isinstance(name, str) and name:
        yield SettingBeside(ADAPTED_BASE, name, str(file), 0, name)
