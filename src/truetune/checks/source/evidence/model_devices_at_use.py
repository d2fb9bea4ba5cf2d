"""Says on which device a model is when the symbolic run of a script uses it.

How it works: a model is followed back to its load, and every call that moved it, or handed it to a
library, is looked at in the order of the run. The last one before the use decides; one in a branch
that a run may leave out is only one of several possibilities.

The trade-off: a library that is handed the model may move it, so behind any function that is not
known here nothing is said.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.source.evidence.trace_answering_models_to_load import BILLIONS_IN_NAME
from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.trace_back_to_load import lineages_back_to_origins
from truetune.source.symbolic_execution.trace_of_events import (
    CallEvent,
    Event,
    Trace,
    is_constant_none,
)
from truetune.source.symbolic_execution.values_of_run import (
    Attribute,
    Constant,
    Element,
    Instance,
    Item,
    Library,
    Mapping,
    Operation,
    Option,
    Parameter,
    Result,
    Sequence,
    Unknown,
    Value,
    options_of_choice,
)

GPU, CPU, UNKNOWN = "gpu", "cpu", "unknown"
LOADS = (
    "transformers.*Model*.from_pretrained",
    "transformers.*For*.from_pretrained",
    "peft.AutoPeftModel*.from_pretrained",
)
"""Loads that leave a model on the CPU unless they are told otherwise"""
MOVES = ("to", "cuda", "cpu")
LEAVES_IN_PLACE = (
    "peft.get_peft_model",
    "peft.PeftModel*.from_pretrained",
    "torch.compile",
    "torch.save",
    "torch.optim.*",
    "print",
    "len",
    "id",
    "type",
    "isinstance",
    "hasattr",
    "getattr",
    "setattr",
    "copy.deepcopy",
    "wandb.watch",
    "tqdm.*",
    "transformers.DataCollator*",
)
"""Functions that move no model that they are given"""
PLACING_ARGUMENTS = ("quantization_config", "load_in_4bit", "load_in_8bit", "tp_plan", "gguf_file")
"""Arguments of a load that put the model on a GPU, or need one"""
QUANTIZED = re.compile(r"gptq|awq|bnb|[48]-?bit|gguf|int4|int8|fp8", re.I)
"""Names of weights that are stored quantized: loading puts them on the GPU, or refuses"""
PARAMETER_METHODS = ("parameters", "named_parameters", "modules", "named_modules", "children")
MODEL_WORD = re.compile(r"model|net|policy|module|engine|actor|self|encoder", re.I)
"""Names of arguments that nobody gives, and that may be a model"""
UNDECIDED = ("branch", "try", "except")
"""What a run may leave out"""
MAX_HOLDERS = 3
"""Objects and lists around a model"""
MAX_STEPS = 12
"""Attributes and items around a model"""


class DevicePlacement(NamedTuple):
    """Where a model is, and what put it there."""

    device: str
    """GPU, CPU or UNKNOWN"""
    event: CallEvent | None
    """The call that put it there; None where it is still where its load left it without being told"""
    option: Option | None = None
    """The option of the command line that names the device, with its default"""


class PlacedModel(NamedTuple):
    """A model with one load, at one place of the run."""

    load: CallEvent
    placements: tuple[DevicePlacement, ...]
    """Where it may be"""

    @property
    def is_on_cpu(self) -> bool:
        """Is it certainly on the CPU?"""
        return all(one.device == CPU for one in self.placements)

    @property
    def is_where_load_left_it(self) -> bool:
        """Is it where the load left it, which was not told any device?"""
        return all(one.device == CPU and one.event is None for one in self.placements)


class ModelDevices:
    """The devices of the models of one run."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._has_default_device = any(
            True for _ in trace.calls("torch.set_default_device", "torch.set_default_tensor_type")
        )
        self._moves = [call for call in trace.all_calls if call.method in MOVES]

    def models_with_device_at(self, model: Value, use: Event) -> list[PlacedModel]:
        """The models that a value may be, each with where it is when an event begins; [] where one
        is not known.
        """
        placed: list[PlacedModel] = []
        for way in lineages_back_to_origins(model):
            load = way.call_that_gave_origin
            if load is None or not load.named(*LOADS) or self._has_default_device:
                return []
            placed.append(PlacedModel(load, tuple(self._possible_placements(load, use))))
        return placed

    def last_move_to_gpu_before(self, load: CallEvent, before: Event) -> CallEvent | None:
        """The last call before an event that put a model on a GPU."""
        moved = [
            call
            for call in self._moves
            if call.number < before.number and holds_model(call.receiver, load)
        ]
        on_gpu = [one for one in moved if _placement_by_move(one).device == GPU]
        if _placement_by_load(load).device == GPU:
            on_gpu.insert(0, load)
        return on_gpu[-1] if on_gpu else None

    def _possible_placements(self, load: CallEvent, use: Event) -> Iterator[DevicePlacement]:
        """The devices where a model may be at a use, from the last call before it that surely
        placed the model.
        """
        arms = {(id(frame.node), frame.taken) for frame in use.frames(*UNDECIDED)}
        for call in reversed(self._trace.all_calls):
            if not load.number < call.number < use.number:
                continue
            placement = self._placement_by(call, load)
            if placement is None:
                continue
            yield placement
            if all((id(frame.node), frame.taken) in arms for frame in call.frames(*UNDECIDED)):
                return
        yield _placement_by_load(load)

    def _placement_by(self, call: CallEvent, load: CallEvent) -> DevicePlacement | None:
        """The device that a call puts a model on; None where it does not touch the model, or leaves
        it in place.
        """
        if call.method in MOVES:
            if holds_model(call.receiver, load):
                moved = _placement_by_move(call)
                return None if moved.device == "" else moved
            if may_be_model_or_its_weights(call.receiver, load):
                return DevicePlacement(UNKNOWN, call)
            return None
        if call.method == "parallelize" or call.named("*.dispatch_model"):
            return DevicePlacement(GPU, call)
        if call.named(*LEAVES_IN_PLACE) or call is load:
            return None
        arguments = (*call.args, *call.keywords.values())
        if any(holds_model(one, load) for one in arguments):
            return DevicePlacement(UNKNOWN, call)
        return None


def holds_model(value: Value | None, load: CallEvent, depth: int = 0) -> bool:
    """Is it the model of a load, or a container or object of the project that holds it?"""
    if value is None or depth > MAX_HOLDERS:
        return False
    if isinstance(value, Instance):
        parts = [one for one in value.attributes.values() if not isinstance(one, Constant)]
        return any(holds_model(one, load, depth + 1) for one in parts)
    if isinstance(value, Sequence):
        return any(holds_model(one, load, depth + 1) for one in value.items)
    if isinstance(value, Mapping):
        return any(holds_model(one, load, depth + 1) for one in value.entries.values())
    return any(way.call_that_gave_origin is load for way in lineages_back_to_origins(value))


def _placement_by_move(call: CallEvent) -> DevicePlacement:
    """The device that `.to(device)`, `.cuda()` or `.cpu()` puts a model on; an empty device where
    the call names none.
    """
    if call.method != "to":
        return DevicePlacement(GPU if call.method == "cuda" else CPU, call)
    device_argument = call.argument(0, "device")
    if device_argument is None:
        return DevicePlacement(UNKNOWN if call.is_open else "", call)
    device, option = device_and_option_of(device_argument)
    return DevicePlacement(device, call, option)


def _placement_by_load(load: CallEvent) -> DevicePlacement:
    """The device that a load puts its model on."""
    if _may_be_placed_without_device_map(load):
        return DevicePlacement(UNKNOWN, load)
    device_map_argument = load.keywords.get("device_map")
    if not _is_given_and_not_none_or_false(device_map_argument):
        return DevicePlacement(CPU, None)
    if isinstance(device_map_argument, Mapping):
        devices = {device_and_option_of(one)[0] for one in device_map_argument.entries.values()}
        is_cpu = devices == {CPU} and not device_map_argument.is_open
        return DevicePlacement(CPU if is_cpu else GPU, load)
    device, option = device_and_option_of(device_map_argument)
    return DevicePlacement(device, load, option)


def _may_be_placed_without_device_map(load: CallEvent) -> bool:
    """May anything but `device_map` place a loaded model: another argument, a block, its weights?"""
    if load.is_open or any(
        _is_given_and_not_none_or_false(load.keywords.get(name)) for name in PLACING_ARGUMENTS
    ):
        return True
    if any(True for _ in load.frames("with")) and not _stands_only_in_deviceless_blocks(load):
        return True
    name = name_of_loaded_model(load)
    return name is not None and QUANTIZED.search(name) is not None


def _is_given_and_not_none_or_false(value: Value | None) -> bool:
    """Is an argument given, and not None or False?"""
    return value is not None and not is_constant_none(value) and constant_of(value) is not False


def _stands_only_in_deviceless_blocks(event: Event) -> bool:
    """Does a call stand only in `with` blocks that choose no device?"""
    managers = (frame.value for frame in event.frames("with"))
    return all(_is_no_grad_manager(one) for one in managers)


def _is_no_grad_manager(manager: Value | None) -> bool:
    """Is it `torch.no_grad()` or `torch.inference_mode()`?"""
    if isinstance(manager, Library):
        return manager.name in ("torch.no_grad", "torch.inference_mode")
    return isinstance(manager, Result) and manager.call.named("torch.no_grad", "torch.inference_*")


def device_and_option_of(value: Value | None) -> tuple[str, Option | None]:
    """The device that a value names, and the option that it comes from.

    A GPU where there is one counts as GPU: `"cuda" if torch.cuda.is_available() else "cpu"`. A
    dtype names none, "".
    """
    if value is None:
        return UNKNOWN, None
    found = [_device_of_plain_value(one, 0) for one in options_of_choice(value)]
    devices = {device for device, _ in found}
    if GPU in devices:
        return GPU, None
    if len(devices) == 1:
        return found[0]
    return UNKNOWN, None


def _device_of_plain_value(value: Value, depth: int) -> tuple[str, Option | None]:
    """The device that one value names."""
    if depth > MAX_STEPS:
        return UNKNOWN, None
    if isinstance(value, Option):
        inner = UNKNOWN if value.default is None else device_and_option_of(value.default)[0]
        return inner, value
    if isinstance(value, Library):
        return ("" if value.name.startswith("torch.") else UNKNOWN), None
    if isinstance(value, Result) and value.call.named("torch.device") and value.call.args:
        return device_and_option_of(value.call.args[0])
    if isinstance(value, Operation) and value.operator == "format":
        return _device_of_plain_value(value.operands[0], depth + 1)
    return _device_of_constant(constant_of(value)), None


def _device_of_constant(plain: object) -> str:
    """The device that a text (`cuda:0`) or a number names; pipelines take -1 for the CPU."""
    if isinstance(plain, str):
        return CPU if plain.strip().startswith("cpu") else GPU
    if isinstance(plain, int) and not isinstance(plain, bool):
        return CPU if plain < 0 else GPU
    return UNKNOWN


def may_be_model_or_its_weights(value: Value | None, load: CallEvent) -> bool:
    """May what is moved or cast be the model, or its weights one by one?"""
    whole = value
    for _ in range(MAX_STEPS):
        if isinstance(value, Attribute | Item):
            value = value.base
        elif isinstance(value, Element):
            value = value.iterable
        elif isinstance(value, Result) and value.call.method in PARAMETER_METHODS:
            return value.call.receiver is not None and _may_be_result_of(value.call.receiver, load)
        else:
            break
    if value is not whole and isinstance(value, Result) and holds_model(value, load):
        return True  # a part of the model, such as its head
    if isinstance(value, Parameter):
        return MODEL_WORD.search(value.name) is not None
    return isinstance(value, Unknown) and MODEL_WORD.search(value.why) is not None


def _may_be_result_of(model: Value, load: CallEvent) -> bool:
    """Is the model that of a load, or not known?"""
    return any(
        way.call_that_gave_origin is load or way.call_that_gave_origin is None
        for way in lineages_back_to_origins(model)
    )


def name_of_loaded_model(load: CallEvent) -> str | None:
    """The name of the model that a call loads; None where it is not plain."""
    model_name_argument = load.argument(0, "pretrained_model_name_or_path") or load.keywords.get(
        "model_name"
    )
    plain = constant_of(model_name_argument)
    return plain if isinstance(plain, str) else None


def billions_of_parameters_in_model_name(name: str | None) -> float | None:
    """Billions of parameters, as the name of a model says them; None where it says none."""
    sizes = [float(size) for size in BILLIONS_IN_NAME.findall((name or "").replace("_", "-"))]
    return max(sizes) if sizes else None


def is_16_bit_dtype(value: Value | None) -> bool:
    """Does a value name a dtype of 16 bits?"""
    if value is None:
        return False
    names = {
        one.name if isinstance(one, Library) else str(constant_of(one))
        for one in options_of_choice(value)
    }
    return names <= {"torch.bfloat16", "torch.float16", "torch.half", "bfloat16", "float16"}
