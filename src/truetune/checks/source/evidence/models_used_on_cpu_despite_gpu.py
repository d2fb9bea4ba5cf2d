"""Finds models that a script uses on the CPU, although it, or the job that starts it, means a GPU.

How it works: each generation, each training loop and each pipeline of the symbolic run is asked
where its model is. Who names the CPU may mean it, so there the GPU has to be meant too: by a job
that reserves one, by an earlier move to one, by a call that fails without one, or by the size of a
model that is trained. A model that nobody moved is enough where it is for a GPU.

The trade-off: who has no GPU, and writes so only in words, is told of it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.source.evidence.model_devices_at_use import (
    CPU,
    DevicePlacement,
    ModelDevices,
    PlacedModel,
    billions_of_parameters_in_model_name,
    device_and_option_of,
    is_16_bit_dtype,
    name_of_loaded_model,
)
from truetune.checks.source.evidence.optimizers_before_adapters import (
    OPTIMIZER_CLASSES,
    models_of_parameters,
)
from truetune.checks.source.evidence.script_start_commands_and_reserved_gpus import (
    JobStart,
    gpu_start_of_script,
    is_option_given_by_starts,
)
from truetune.source.parsed_source_file import Module
from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.run_scripts_and_keep_traces import (
    traces_of_scripts_that_reach_file,
)
from truetune.source.symbolic_execution.trace_of_events import CallEvent, Event, StoreEvent, Trace
from truetune.source.symbolic_execution.values_of_run import (
    Constant,
    Library,
    Option,
    Value,
    options_of_choice,
)

MIN_BILLIONS = 1.0
"""A smaller model in float32 is a demonstration, which a CPU answers at reading speed. At double, 1.5B models are
missed"""
NARROWING_METHODS = ("half", "bfloat16")
PIPELINE = "transformers.pipeline"
TRAINER_ARGUMENTS = ("transformers.*TrainingArguments", "trl.*Config", "unsloth.*Config")
CPU_SWITCHES = ("use_cpu", "no_cuda")
TRAINERS = ("transformers.*Trainer", "trl.*Trainer", "unsloth.*Trainer")
LIGHTNING_TRAINERS = ("lightning.*Trainer", "pytorch_lightning.*Trainer")
NEED_GPU = (
    "torch.cuda.set_device",
    "torch.cuda.get_device_name",
    "torch.cuda.get_device_properties",
    "torch.cuda.get_device_capability",
    "torch.cuda.current_device",
    "torch.cuda.mem_get_info",
    "torch.cuda.synchronize",
)
ASKS_FOR_GPU = ("torch.cuda.is_available",)
SHORT_RUN = 20
"""Steps of a run that only tries whether a script starts"""
VISIBLE = "CUDA_VISIBLE_DEVICES"
NO_DEVICES = ("", "-1")
MODEL_LOADS = ("*.from_pretrained",)


class CpuUse(NamedTuple):
    """A model that is used on the CPU."""

    what: str
    """What is done there: `every answer is generated`, `it is trained`"""
    places: tuple[Event, ...]
    """What put it there, and what uses it"""
    named: str
    """What names the CPU: `device_map="cpu"`; "" where nothing moved the model"""
    sign: str
    """What means a GPU; "" where the model itself does"""


def models_used_on_cpu(module: Module) -> Iterator[CpuUse]:
    """The models that a file uses on the CPU, each place once.

    Args:
        module: A file that is judged.
    """
    seen: set[ast.AST] = set()
    for trace in traces_of_scripts_that_reach_file(module):
        if not trace.is_whole:
            continue
        for use in _cpu_uses_of_run(trace):
            at = use.places[0]
            if at.home.path == module.path and at.node not in seen:
                seen.add(at.node)
                yield use


def _cpu_uses_of_run(trace: Trace) -> Iterator[CpuUse]:
    """What one run uses on the CPU."""
    job = gpu_start_of_script(trace.entry.path)
    devices = ModelDevices(trace)
    for call in trace.methods("generate"):
        if call.receiver is not None:
            models = devices.models_with_device_at(call.receiver, call)
            yield from _cpu_uses_of_models(
                trace, devices, models, call, "every answer is generated", job
            )
    for optimizer, step in _optimizers_with_backward(trace):
        held = models_of_parameters(optimizer.args[0]) if optimizer.args else None
        for model in held or ():
            models = devices.models_with_device_at(model, step)
            yield from _cpu_uses_of_models(trace, devices, models, optimizer, "it is trained", job)
    yield from _cpu_pipelines(trace, job)
    yield from _trainings_switched_to_cpu(trace, job)


def _optimizers_with_backward(trace: Trace) -> Iterator[tuple[CallEvent, CallEvent]]:
    """The optimizers of a run's own loops, each with the first backward pass behind it."""
    backward = [call for call in trace.all_calls if call.method == "backward"]
    for optimizer in trace.calls(*OPTIMIZER_CLASSES):
        first = next((call for call in backward if call.number > optimizer.number), None)
        if first is not None and not optimizer.named("torch.optim.lr_scheduler.*"):
            yield optimizer, first


def _cpu_uses_of_models(
    trace: Trace,
    devices: ModelDevices,
    models: list[PlacedModel],
    use: CallEvent,
    what: str,
    job: JobStart | None,
) -> Iterator[CpuUse]:
    """The finding of one use whose models are all certainly on the CPU, if anything means a GPU."""
    if not models or not all(one.is_on_cpu for one in models):
        return
    one = models[0]
    if one.is_where_load_left_it:
        yield from _cpu_use_of_unmoved_model(trace, one, use, what, job)
        return
    yield from _cpu_use_of_moved_model(trace, devices, one, use, what, job)


def _cpu_use_of_moved_model(
    trace: Trace,
    devices: ModelDevices,
    model: PlacedModel,
    use: CallEvent,
    what: str,
    job: JobStart | None,
) -> Iterator[CpuUse]:
    """The use of a model that a call puts on the CPU, if anything else means a GPU."""
    placement = next(placed for placed in model.placements if placed.event is not None)
    if placement.event is None or not _device_is_not_overridden(trace, placement.option):
        return
    sign = (
        _gpu_sign_of_job(job)
        or _gpu_sign_of_calls(trace)
        or _gpu_sign_of_earlier_move(devices, model, placement)
        or _gpu_sign_of_training_size(use, model)
    )
    if sign is not None:
        yield CpuUse(what, (placement.event, use), _device_code_of_call(placement.event), sign)


def _gpu_sign_of_training_size(use: CallEvent, model: PlacedModel) -> str | None:
    """The words about the size of a model that is trained; large ones do answer on a CPU."""
    return None if use.method == "generate" else _gpu_sign_of_model_size(model.load)


def _cpu_use_of_unmoved_model(
    trace: Trace, model: PlacedModel, use: CallEvent, what: str, job: JobStart | None
) -> Iterator[CpuUse]:
    """The use of a model that nothing moves, if the script or its job is for a GPU and nothing
    names the CPU.
    """
    sign = _gpu_sign_of_job(job) or _gpu_sign_of_code(trace, is_trained=use.method != "generate")
    is_for_gpu = sign is not None or _is_16_bit_or_large(trace, model.load)
    if is_for_gpu and not _chooses_cpu_or_hides_gpus(trace):
        yield CpuUse(what, (model.load, use), "", sign or "")


def _gpu_sign_of_earlier_move(
    devices: ModelDevices, model: PlacedModel, placement: DevicePlacement
) -> str | None:
    """The words about a model that was on a GPU before it was put on the CPU."""
    if placement.event is None:
        return None
    moved = devices.last_move_to_gpu_before(model.load, placement.event)
    return None if moved is None else f"{_device_code_of_call(moved)} had put it on a GPU"


def _device_is_not_overridden(trace: Trace, option: Option | None) -> bool:
    """Is the device written in the script, or an option that no command beside it gives?"""
    if option is None:
        return True
    # Without a job that starts the script, whoever starts it may give the option.
    return gpu_start_of_script(trace.entry.path) is not None and not is_option_given_by_starts(
        trace.entry.path, option.name
    )


def _gpu_sign_of_job(job: JobStart | None) -> str | None:
    """The words about a job that has a GPU."""
    return None if job is None else f"the job that starts the script has a GPU ({job.gpu_text})"


def _gpu_sign_of_model_size(load: CallEvent) -> str | None:
    """The words about a model that nobody trains on a CPU by intent."""
    billions = billions_of_parameters_in_model_name(name_of_loaded_model(load))
    if billions is None or billions < MIN_BILLIONS:
        return None
    return f"it has {billions:g} billion parameters"


def _gpu_sign_of_calls(trace: Trace) -> str | None:
    """The words about a call that fails, or means nothing, without a GPU; None where none is surely
    made.
    """
    for call in trace.calls(*NEED_GPU, *ASKS_FOR_GPU):
        is_asked = call.named(*ASKS_FOR_GPU)
        if any(call.frames("branch", "try", "except")) or (is_asked and not _asserts_cuda(call)):
            continue
        return f"{call.names[0]}() needs one"
    for call in trace.calls("torch.autocast", "torch.amp.autocast"):
        if constant_of(call.argument(0, "device_type"), with_defaults=False) == "cuda":
            return "the forward pass runs under autocast for CUDA"
    return None


def _asserts_cuda(call: CallEvent) -> bool:
    """Is a call the condition of an assertion, `assert torch.cuda.is_available()`?"""
    return any(
        isinstance(around, ast.Assert) for around in call.home.parents(call.node)
    ) and isinstance(call.node, ast.Call)


def _gpu_sign_of_code(trace: Trace, *, is_trained: bool) -> str | None:
    """What in the files of a run means a GPU: a device that is named, a call of torch.cuda; None
    where nothing does.
    """
    # To answer a question or two on a CPU is usual, so a script that only generates needs more.
    if not is_trained:
        return None
    files = trace.entry.self_and_files_run_together
    for part in files:
        for node in part.nodes(ast.Constant, ast.Attribute):
            if _names_cuda(node):
                return "the script speaks of CUDA"
    return None


def _names_cuda(node: ast.AST) -> bool:
    """Is it the text `cuda` or `cuda:0`, or an attribute of that name?"""
    if isinstance(node, ast.Attribute):
        return node.attr == "cuda"
    word = node.value if isinstance(node, ast.Constant) else None
    return isinstance(word, str) and word.partition(":")[0] == "cuda"


def _is_16_bit_or_large(trace: Trace, load: CallEvent) -> bool:
    """Is it a model that nobody runs on a CPU with intent: in 16 bits, or large by its name?"""
    if any(is_16_bit_dtype(load.keywords.get(name)) for name in ("dtype", "torch_dtype")):
        return True
    for call in trace.methods(*NARROWING_METHODS):
        if call.receiver is load.result:
            return True
    return _gpu_sign_of_model_size(load) is not None


def _chooses_cpu_or_hides_gpus(trace: Trace) -> bool:
    """Does the script choose the CPU as its device, or hide the GPUs?"""
    for event in trace.events:
        name = getattr(event, "name", None)
        key = event.key if isinstance(event, StoreEvent) else name
        if not isinstance(key, str) or "device" not in key.lower():
            continue
        if _is_written_cpu(getattr(event, "value", None)):
            return True
    return next(_events_hiding_gpus(trace), None) is not None


def _is_written_cpu(value: Value | None) -> bool:
    """Is it the CPU as it is written, and no fallback or default of an option?"""
    if value is None or any(isinstance(one, Option) for one in options_of_choice(value)):
        return False
    device, option = device_and_option_of(value)
    return device == CPU and option is None and not isinstance(constant_of(value), int)


def _cpu_pipelines(trace: Trace, job: JobStart | None) -> Iterator[CpuUse]:
    """The pipelines that are told to use the CPU, where the job has a GPU."""
    sign = _gpu_sign_of_job(job) or _gpu_sign_of_calls(trace)
    for call in trace.calls(PIPELINE):
        device, option = device_and_option_of(call.keywords.get("device"))
        if device == CPU and sign is not None and _device_is_not_overridden(trace, option):
            yield CpuUse("every answer is generated", (call,), _device_code_of_call(call), sign)


def _trainings_switched_to_cpu(trace: Trace, job: JobStart | None) -> Iterator[CpuUse]:
    """The settings that keep the training of a Trainer, Accelerate or Lightning on the CPU."""
    trains = any(True for _ in trace.methods("train", "fit", "backward"))
    if not trains:
        return
    sign = _gpu_sign_of_job(job) or _gpu_sign_of_calls(trace) or _gpu_sign_of_trained_size(trace)
    if sign is None:
        return
    for event, named in (*_settings_choosing_cpu(trace), *_events_hiding_gpus(trace)):
        yield CpuUse("the model is trained", (event,), named, sign)


def _settings_choosing_cpu(trace: Trace) -> Iterator[tuple[Event, str]]:
    """The arguments that make a training leave the GPUs alone, each with its code."""
    for call in trace.calls(*TRAINER_ARGUMENTS):
        steps = constant_of(call.keywords.get("max_steps"))
        is_trial = isinstance(steps, int) and 0 < steps <= SHORT_RUN
        for name in CPU_SWITCHES:
            if not is_trial and _is_certainly_true(call.keywords.get(name)):
                yield call, f"{name}=True"
    for call in trace.calls("accelerate.Accelerator"):
        if _is_certainly_true(call.keywords.get("cpu")):
            yield call, "cpu=True"
    for call in trace.calls(*LIGHTNING_TRAINERS):
        if constant_of(call.keywords.get("accelerator"), with_defaults=False) == "cpu":
            yield call, 'accelerator="cpu"'


def _is_certainly_true(value: Value | None) -> bool:
    """Is it True, whatever a user gives?"""
    return constant_of(value, with_defaults=False) is True


def _events_hiding_gpus(trace: Trace) -> Iterator[tuple[Event, str]]:
    """The events by which the script hides all GPUs from itself, each with its code."""
    for event in trace.stores:
        is_variable = isinstance(event.base, Library) and event.base.name == "os.environ"
        key = constant_of(event.key) if isinstance(event.key, Value) else None
        if is_variable and key == VISIBLE and isinstance(event.value, Constant):
            if event.value.value in NO_DEVICES and not any(event.frames("branch")):
                yield event, f'{VISIBLE}="{event.value.value}"'


def _gpu_sign_of_trained_size(trace: Trace) -> str | None:
    """The words about a model of the run that nobody trains on a CPU by intent."""
    names: list[object] = [
        constant_of(call.argument(0, "model")) for call in trace.calls(*TRAINERS)
    ]
    names += [name_of_loaded_model(call) for call in trace.calls(*MODEL_LOADS)]
    sizes = [billions_of_parameters_in_model_name(name) for name in names if isinstance(name, str)]
    large = [size for size in sizes if size is not None and size >= MIN_BILLIONS]
    return f"it has {max(large):g} billion parameters" if large else None


def _device_code_of_call(call: CallEvent) -> str:
    """What names the CPU or GPU in a call, as it is written."""
    if call.method == "to" and isinstance(call.node, ast.Call):
        return f".to({', '.join(ast.unparse(one) for one in call.node.args[:1])})"
    if call.method is not None and isinstance(call.node, ast.Call):
        return f".{call.method}()"
    for name in ("device_map", "device"):
        value = call.keywords.get(name)
        if value is not None and isinstance(call.node, ast.Call):
            written = {one.arg: ast.unparse(one.value) for one in call.node.keywords}
            return f"{name}={written.get(name, '...')}"
    return "the script"
