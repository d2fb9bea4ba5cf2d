"""Protocols of the steps of a training loop: scaled gradients, clipping, schedules, samplers."""

from __future__ import annotations

import ast

from truetune.checks.source.evidence.optimizers_before_adapters import models_of_parameters
from truetune.checks.source.evidence.training_protocol.find_acted_objects import (
    ACCELERATORS,
    DISTRIBUTED_SAMPLERS,
    OPTIMIZERS,
    SCHEDULERS,
    argument_of,
    each_object_when_gradients_are_clipped,
    enabled_scaler,
    every_object,
    is_inside_wrapper,
    is_made_by,
    only_call_object_comes_from,
    receiver_made_by,
    result_of_call_event,
    scaler_of_backward,
    stepping_optimizer,
    unless_receiver_made_by,
)
from truetune.checks.source.evidence.training_protocol.protocol_records import (
    EVERY_OBJECT,
    START,
    ActedObject,
    Action,
    BrokenOrder,
    Protocol,
    Releases,
    State,
    Transition,
)
from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.trace_of_events import CallEvent, Event
from truetune.source.symbolic_execution.values_of_run import Value, options_of_choice

CLIPPING_FUNCTIONS = (
    "torch.nn.utils.clip_grad_norm_",
    "torch.nn.utils.clip_grad_value_",
    "torch.nn.utils.clip_grad_norm",
    "torch.nn.utils.clip_grad.clip_grad_*",
)
CLIPPING_FUNCTIONS_BY_NORM = tuple(name for name in CLIPPING_FUNCTIONS if "value" not in name)
CLIPPING_METHODS = ("clip_grad_norm_", "clip_grad_value_")
SHARDING_WRAPPERS = (
    "torch.distributed.fsdp.FullyShardedDataParallel",
    "torch.distributed.fsdp.fully_sharded_data_parallel.FullyShardedDataParallel",
    "fairscale.nn.*FullyShardedDataParallel",
)
"""Wrappers that leave each process a plain part of a weight; `fully_shard` leaves tensors that know of the others"""
WHOLE_STRATEGIES = ("NO_SHARD",)
"""Strategies of FSDP under which each process holds whole weights"""
WEIGHT_AVERAGES = (
    "diffusers.training_utils.EMAModel",
    "diffusers.EMAModel",
    "torch_ema.ExponentialMovingAverage",
    "torch_ema.ema.ExponentialMovingAverage",
)
GRADIENTS_SCALED_BY_HAND = (
    "grad.div_(",
    "grad.mul_(",
    "grad /=",
    "grad *=",
    "_foreach_",
    "inv_scale",
)
"""Code that divides gradients by their scale itself"""
ACCUMULATED_ELSEWHERE = (
    "GradientAccumulationPlugin",
    "deepspeed",
    "DeepSpeed",
)
"""Code that leaves the batches of a step to a plugin, or to DeepSpeed"""
AMP_EXAMPLES = "https://docs.pytorch.org/docs/stable/notes/amp_examples.html"


def _scaler_receiver(event: Event) -> ActedObject:
    """The GradScaler whose method is called."""
    return enabled_scaler(event.receiver) if isinstance(event, CallEvent) else None


def _scaled_optimizer(event: Event) -> ActedObject:
    """The optimizer that a GradScaler is given."""
    if not isinstance(event, CallEvent) or enabled_scaler(event.receiver) is None:
        return None
    return argument_of(event, 0, "optimizer")


def _each_scaler_at_step_without_scaler(event: Event) -> ActedObject:
    """Each scaler, at the step of an optimizer that no scaler makes."""
    receiver = event.receiver if isinstance(event, CallEvent) else None
    return EVERY_OBJECT if is_made_by(receiver, OPTIMIZERS) else None


def _each_schedule_at_optimizer_step(event: Event) -> ActedObject:
    """Each schedule, at the step of any optimizer."""
    return None if stepping_optimizer(event) is None else EVERY_OBJECT


def _half_precision_accelerator(event: Event) -> ActedObject:
    """The accelerator whose gradients are scaled: it is made with `mixed_precision="fp16"`."""
    receiver = event.receiver if isinstance(event, CallEvent) else None
    return receiver if _takes_half_precision(_maker_of_accelerator(receiver)) else None


def _maker_of_accelerator(value: Value | None) -> CallEvent | None:
    """The call that made an accelerator."""
    call_event = only_call_object_comes_from(value)
    return call_event if call_event is not None and call_event.named(*ACCELERATORS) else None


def _takes_half_precision(call_event: CallEvent | None) -> bool:
    """Is an accelerator made for float16?"""
    mixed_precision_argument = (
        None if call_event is None else call_event.argument(-1, "mixed_precision")
    )
    return mixed_precision_argument is not None and constant_of(mixed_precision_argument) == "fp16"


def _accelerator_that_scales_losses(event: Event) -> ActedObject:
    """The accelerator that scales losses: for float16, or by its accumulation steps."""
    if not isinstance(event, CallEvent):
        return None
    gradient_accumulation_steps_argument = event.keywords.get("gradient_accumulation_steps")
    steps = (
        None
        if gradient_accumulation_steps_argument is None
        else constant_of(gradient_accumulation_steps_argument)
    )
    accumulates = isinstance(steps, int) and steps > 1
    return event.result if accumulates or _takes_half_precision(event) else None


def _accumulating_accelerator(event: Event) -> ActedObject:
    """The accelerator that is told to accumulate, by a number of more than one or by a value that a run gives."""
    if not isinstance(event, CallEvent) or "gradient_accumulation_steps" not in event.keywords:
        return None
    steps = constant_of(event.keywords["gradient_accumulation_steps"])
    return None if steps in (0, 1, None) else event.result


def _sampler_with_fixed_epoch(event: Event) -> ActedObject:
    """The sampler whose `set_epoch` gets a number that is written in the loop."""
    if not isinstance(event, CallEvent) or not isinstance(event.node, ast.Call):
        return None
    arguments = [*event.node.args, *(keyword.value for keyword in event.node.keywords)]
    is_fixed = len(arguments) == 1 and isinstance(arguments[0], ast.Constant)
    in_loop = any(True for _ in event.frames("loop"))
    is_sampler = is_made_by(event.receiver, DISTRIBUTED_SAMPLERS)
    return event.receiver if is_fixed and in_loop and is_sampler else None


def _sharded_model(event: Event) -> ActedObject:
    """The model that FSDP shards; None where each process holds all of its weights."""
    if not isinstance(event, CallEvent):
        return None
    strategy = event.argument(-1, "sharding_strategy")
    options = () if strategy is None else options_of_choice(strategy)
    names = [getattr(one, "name", "") for one in options]
    is_whole = any(str(name).endswith(WHOLE_STRATEGIES) for name in names)
    return None if is_whole else argument_of(event, 0, "module")


def _model_of_clipped_weights(event: Event) -> ActedObject:
    """The wrapped model whose gradients torch clips by their norm."""
    if each_object_when_gradients_are_clipped(event) is None:
        return None
    given = argument_of(event, 0, "parameters")
    models = models_of_parameters(given) if given is not None else None
    if models is None or len(models) != 1:
        return None
    return models[0] if is_inside_wrapper(models[0]) else None


GRADIENT_SCALE = Protocol(
    name="gradient-scale",
    title="Gradients under a GradScaler",
    family="step",
    about="a `GradScaler` of torch",
    states=(
        State("scaled", "the gradients are multiplied by the scale"),
        State("unscaled", "the gradients have their own size"),
        State("stepped", "the optimizer has used them"),
    ),
    actions=(
        Action(
            "scaled backward",
            "scaler.scale(loss).backward()",
            scaler_of_backward,
            methods=("backward",),
        ),
        Action("unscale", "scaler.unscale_(optimizer)", _scaler_receiver, methods=("unscale_",)),
        Action("scaled step", "scaler.step(optimizer)", _scaler_receiver, methods=("step",)),
        Action("update", "scaler.update()", _scaler_receiver, methods=("update",)),
        Action(
            "clip",
            "clip_grad_norm_(model.parameters(), 1.0)",
            each_object_when_gradients_are_clipped,
            functions=CLIPPING_FUNCTIONS,
            methods=CLIPPING_METHODS,
        ),
        Action(
            "plain step", "optimizer.step()", _each_scaler_at_step_without_scaler, methods=("step",)
        ),
    ),
    transitions=(
        Transition("scaled backward", "scaled"),
        Transition("unscale", "unscaled", ("scaled",)),
        Transition("scaled step", "stepped", ("scaled", "unscaled")),
        Transition("update", START),
    ),
    broken_orders=(
        BrokenOrder(
            "clip-before-unscale",
            "scaled",
            "clip",
            "the gradients are clipped while they are multiplied by the GradScaler's scale: after"
            " unscaling they are far below the limit, and hardly anything is learned",
            "call scaler.unscale_(optimizer) after the last backward pass and before the gradients are clipped",
            f"{AMP_EXAMPLES}#gradient-clipping",
        ),
        BrokenOrder(
            "scaled-gradients-stepped",
            "scaled",
            "plain step",
            "the optimizer steps with gradients that are still multiplied by the GradScaler's"
            " scale, and infinite ones are not skipped",
            "call scaler.step(optimizer) and scaler.update() instead of optimizer.step()",
            f"{AMP_EXAMPLES}#typical-mixed-precision-training",
            unless_done=("scaled step", "unscale"),
        ),
    ),
    silenced_by=GRADIENTS_SCALED_BY_HAND,
)

SCALED_OPTIMIZER = Protocol(
    name="scaled-optimizer",
    title="An optimizer under a GradScaler",
    family="step",
    about="an optimizer whose steps a `GradScaler` makes",
    states=(
        State("unscaled", "`unscale_` has divided its gradients"),
        State("stepped", "it has stepped, and the scaler was not updated"),
    ),
    actions=(
        Action("unscale", "scaler.unscale_(optimizer)", _scaled_optimizer, methods=("unscale_",)),
        Action("scaled step", "scaler.step(optimizer)", _scaled_optimizer, methods=("step",)),
        Action("update", "scaler.update()", every_object, methods=("update",), moves_all=True),
    ),
    transitions=(
        Transition("unscale", "unscaled"),
        Transition("scaled step", "stepped"),
        Transition("update", START),
    ),
    broken_orders=(
        BrokenOrder(
            "unscaled-twice",
            "unscaled",
            "unscale",
            "the gradients are unscaled a second time before the scaler is updated: this raises"
            " `unscale_() has already been called on this optimizer`",
            "call scaler.unscale_(optimizer) once per step, after the last backward pass",
            "https://docs.pytorch.org/docs/stable/amp.html#torch.amp.GradScaler.unscale_",
        ),
        BrokenOrder(
            "unscaled-after-step",
            "stepped",
            "unscale",
            "the scaler was not updated since its last step: this raises `unscale_() is being"
            " called after step()`",
            "call scaler.update() after scaler.step(optimizer)",
            "https://docs.pytorch.org/docs/stable/amp.html#torch.amp.GradScaler.update",
        ),
        BrokenOrder(
            "stepped-without-update",
            "stepped",
            "scaled step",
            "the scaler steps a second time without an update in between: this raises `step() has"
            " already been called since the last update()`",
            "call scaler.update() after scaler.step(optimizer)",
            "https://docs.pytorch.org/docs/stable/amp.html#torch.amp.GradScaler.update",
        ),
    ),
)

ACCELERATE_SCALE = Protocol(
    name="accelerate-scale",
    title="Gradients that accelerate scales for float16",
    family="step",
    about='an `Accelerator(mixed_precision="fp16")`',
    states=(
        State("scaled", "the gradients are multiplied by the scale"),
        State("unscaled", "the gradients have their own size"),
    ),
    actions=(
        Action(
            "scaled backward",
            "accelerator.backward(loss)",
            _half_precision_accelerator,
            methods=("backward",),
        ),
        Action(
            "unscale",
            "accelerator.clip_grad_norm_(...)",
            _half_precision_accelerator,
            methods=(*CLIPPING_METHODS, "unscale_gradients"),
        ),
        Action(
            "clip",
            "torch.nn.utils.clip_grad_norm_(...)",
            each_object_when_gradients_are_clipped,
            functions=CLIPPING_FUNCTIONS,
        ),
        Action("step", "optimizer.step()", _each_scaler_at_step_without_scaler, methods=("step",)),
    ),
    transitions=(
        Transition("scaled backward", "scaled"),
        Transition("unscale", "unscaled", ("scaled",)),
        Transition("step", START),
    ),
    broken_orders=(
        BrokenOrder(
            "clip-beside-accelerate",
            "scaled",
            "clip",
            "torch clips the gradients while accelerate has them multiplied by the float16 scale:"
            " after unscaling they are far below the limit",
            "call accelerator.clip_grad_norm_(model.parameters(), max_norm), which unscales them first",
            "https://huggingface.co/docs/accelerate/basic_tutorials/migration",
        ),
    ),
)

ACCELERATE_BACKWARD = Protocol(
    name="accelerate-backward",
    title="The backward pass under accelerate",
    family="step",
    about="an `Accelerator` that scales losses (float16, or several accumulation steps)",
    states=(
        State("made", "it is made"),
        State("prepared", "it has prepared a model or an optimizer"),
    ),
    actions=(
        Action(
            "make",
            "Accelerator(gradient_accumulation_steps=4)",
            _accelerator_that_scales_losses,
            functions=ACCELERATORS,
        ),
        Action(
            "prepare",
            "accelerator.prepare(...)",
            receiver_made_by(ACCELERATORS),
            methods=("prepare",),
        ),
        Action(
            "its backward",
            "accelerator.backward(loss)",
            receiver_made_by(ACCELERATORS),
            methods=("backward",),
        ),
        Action(
            "plain backward",
            "loss.backward()",
            unless_receiver_made_by(ACCELERATORS),
            methods=("backward",),
        ),
    ),
    transitions=(
        Transition("make", "made"),
        Transition("prepare", "prepared", ("made",)),
    ),
    broken_orders=(
        BrokenOrder(
            "backward-beside-accelerate",
            "prepared",
            "plain backward",
            "the backward pass bypasses accelerate, which scales the loss for float16 and divides"
            " it by gradient_accumulation_steps: neither happens",
            "call accelerator.backward(loss) instead of loss.backward()",
            "https://huggingface.co/docs/accelerate/basic_tutorials/migration",
            unless_done=("its backward",),
        ),
    ),
)

ACCELERATE_ACCUMULATION = Protocol(
    name="accelerate-accumulation",
    title="Accumulation under accelerate",
    family="step",
    about="an `Accelerator` that is given `gradient_accumulation_steps`",
    states=(
        State("made", "it is made, and no `accumulate` was entered"),
        State("divided", "it has divided a loss by the number of batches"),
    ),
    actions=(
        Action(
            "make",
            "Accelerator(gradient_accumulation_steps=4)",
            _accumulating_accelerator,
            functions=ACCELERATORS,
        ),
        Action(
            "accumulate",
            "with accelerator.accumulate(model):",
            receiver_made_by(ACCELERATORS),
            methods=("accumulate", "no_sync", "accumulation_context"),
        ),
        Action(
            "backward",
            "accelerator.backward(loss)",
            receiver_made_by(ACCELERATORS),
            methods=("backward",),
        ),
        Action(
            "step",
            "optimizer.step()",
            _each_schedule_at_optimizer_step,
            methods=("step",),
            moves_all=True,
        ),
    ),
    transitions=(
        Transition("make", "made"),
        Transition("backward", "divided", ("made",)),
        Transition("step", "made", ("divided",)),
    ),
    broken_orders=(
        BrokenOrder(
            "accumulation-never-entered",
            "divided",
            "step",
            "accelerate gets gradient_accumulation_steps, but `accumulate` is never entered: the"
            " optimizer steps after each batch, yet the loss is divided by the number of"
            " accumulation steps",
            "put the forward and backward pass into `with accelerator.accumulate(model):`",
            "https://huggingface.co/docs/accelerate/usage_guides/gradient_accumulation",
            in_one_pass=True,
            in_each_pass=True,
            unless_done=("accumulate",),
        ),
    ),
    silenced_by=ACCUMULATED_ELSEWHERE,
)

GRADIENTS_OF_STEP = Protocol(
    name="gradients-of-a-step",
    title="Gradients between the backward pass and the step",
    family="step",
    about="an optimizer",
    states=(
        State("cleared", "`zero_grad` has cleared its gradients"),
        State("filled", "a backward pass has filled them"),
        State("clipped empty", "they were clipped before a backward pass filled them"),
        State("stepped", "it has used them"),
    ),
    actions=(
        Action(
            "clear", "optimizer.zero_grad()", receiver_made_by(OPTIMIZERS), methods=("zero_grad",)
        ),
        Action(
            "backward",
            "loss.backward()",
            every_object,
            functions=("torch.autograd.*",),
            methods=("backward", "manual_backward"),
            attributes=("grad",),
            moves_all=True,
        ),
        Action(
            "clip",
            "clip_grad_norm_(model.parameters(), 1.0)",
            each_object_when_gradients_are_clipped,
            functions=CLIPPING_FUNCTIONS,
            methods=CLIPPING_METHODS,
        ),
        Action("step", "optimizer.step()", stepping_optimizer, methods=("step",)),
    ),
    transitions=(
        Transition("clear", "cleared"),
        Transition("backward", "filled"),
        Transition("clip", "clipped empty", ("cleared",)),
        Transition("step", "stepped", ("filled",)),
    ),
    broken_orders=(
        BrokenOrder(
            "clip-after-step",
            "stepped",
            "clip",
            "the gradients are clipped after the optimizer has used them: the step uses them"
            " unclipped",
            "clip between the backward pass and optimizer.step()",
            "https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.clip_grad_norm_.html",
            in_one_pass=True,
        ),
        BrokenOrder(
            "clip-before-backward",
            "clipped empty",
            "backward",
            "the gradients are clipped before the backward pass fills them: the step uses them"
            " unclipped",
            "clip between the backward pass and optimizer.step()",
            "https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.clip_grad_norm_.html",
            in_one_pass=True,
        ),
    ),
)

LEARNING_RATE_SCHEDULE = Protocol(
    name="learning-rate-schedule",
    title="A schedule and its optimizer",
    family="step",
    about="a schedule of the learning rate",
    states=(
        State("early", "it has stepped before the optimizer did"),
        State("running", "the optimizer has stepped"),
    ),
    actions=(
        Action(
            "schedule step", "scheduler.step()", receiver_made_by(SCHEDULERS), methods=("step",)
        ),
        Action(
            "optimizer step",
            "optimizer.step()",
            _each_schedule_at_optimizer_step,
            methods=("step",),
            moves_all=True,
        ),
    ),
    transitions=(
        Transition("schedule step", "early", (START,)),
        Transition("optimizer step", "running"),
    ),
    broken_orders=(
        BrokenOrder(
            "schedule-before-optimizer",
            "early",
            "optimizer step",
            "the schedule steps before the optimizer in each pass: the schedule's first learning"
            " rate is skipped, and each step uses the next one",
            "call scheduler.step() after optimizer.step()",
            "https://docs.pytorch.org/docs/stable/optim.html#how-to-adjust-learning-rate",
            severity="warning",
            releases=Releases("torch", first="1.1"),
            in_one_pass=True,
        ),
    ),
)

SAMPLER_EPOCHS = Protocol(
    name="sampler-epochs",
    title="A DistributedSampler and its epochs",
    family="step",
    about="a `DistributedSampler`",
    states=(State("made", "it draws its order from its seed and its epoch"),),
    actions=(
        Action(
            "make", "DistributedSampler(rows)", result_of_call_event, functions=DISTRIBUTED_SAMPLERS
        ),
        Action(
            "set fixed epoch",
            "sampler.set_epoch(0)",
            _sampler_with_fixed_epoch,
            methods=("set_epoch",),
        ),
    ),
    transitions=(Transition("make", "made"),),
    broken_orders=(
        BrokenOrder(
            "epoch-of-the-sampler-fixed",
            "made",
            "set fixed epoch",
            "set_epoch gets the same number in each epoch: each process gets the same rows in the"
            " same order every time",
            "call sampler.set_epoch(epoch) with the number of the epoch",
            "https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.distributed.DistributedSampler",
            severity="warning",
        ),
    ),
)

AVERAGED_WEIGHTS = Protocol(
    name="averaged-weights",
    title="An average of the weights that is copied into the model",
    family="step",
    about="an average of a model's weights (EMA)",
    states=(State("copied", "the model holds the averaged weights"),),
    actions=(
        Action(
            "copy",
            "ema.copy_to(model.parameters())",
            receiver_made_by(WEIGHT_AVERAGES),
            methods=("copy_to",),
        ),
        Action(
            "restore",
            "ema.restore(model.parameters())",
            receiver_made_by(WEIGHT_AVERAGES),
            methods=("restore",),
        ),
        Action("backward", "loss.backward()", every_object, methods=("backward",), moves_all=True),
    ),
    transitions=(Transition("copy", "copied"), Transition("restore", START)),
    broken_orders=(
        BrokenOrder(
            "trained-on-averaged-weights",
            "copied",
            "backward",
            "the averaged weights are copied into the model and never removed: training continues"
            " from them, and what the optimizer had reached is lost",
            "call ema.store before ema.copy_to, and ema.restore after the evaluation",
            "https://github.com/PKU-YuanGroup/Open-Sora-Plan/issues/186",
        ),
    ),
)

SHARDED_GRADIENTS = Protocol(
    name="sharded-gradients",
    title="Gradients of a model that FSDP shards",
    family="step",
    about="a model",
    states=(State("sharded", "each process holds a part of its weights, and of their gradients"),),
    actions=(
        Action(
            "shard",
            "FullyShardedDataParallel(model)",
            _sharded_model,
            functions=SHARDING_WRAPPERS,
        ),
        Action(
            "clip by torch",
            "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)",
            _model_of_clipped_weights,
            functions=CLIPPING_FUNCTIONS_BY_NORM,
        ),
    ),
    transitions=(Transition("shard", "sharded"),),
    broken_orders=(
        BrokenOrder(
            "clip-of-one-shard",
            "sharded",
            "clip by torch",
            "torch clips the gradients by the norm of the part that this process has: the norm is"
            " too small, and each process scales its part by a different factor",
            "call the FSDP model's model.clip_grad_norm_(max_norm), which computes the norm over"
            " all processes",
            "https://docs.pytorch.org/docs/stable/fsdp.html"
            "#torch.distributed.fsdp.FullyShardedDataParallel.clip_grad_norm_",
        ),
    ),
)

PROTOCOLS_OF_STEPS = (
    GRADIENT_SCALE,
    SCALED_OPTIMIZER,
    ACCELERATE_SCALE,
    ACCELERATE_BACKWARD,
    ACCELERATE_ACCUMULATION,
    GRADIENTS_OF_STEP,
    LEARNING_RATE_SCHEDULE,
    SAMPLER_EPOCHS,
    AVERAGED_WEIGHTS,
    SHARDED_GRADIENTS,
)
