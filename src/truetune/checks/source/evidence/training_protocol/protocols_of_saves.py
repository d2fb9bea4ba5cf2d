"""Protocols of saving and resuming: states of accelerate, of optimizers, wrapped models, tokenizers."""

from __future__ import annotations

from truetune.checks.source.evidence.training_protocol.find_acted_objects import (
    ACCELERATORS,
    DISTRIBUTED_WRAPPERS,
    OPTIMIZERS,
    TOKENIZERS,
    TRAINERS,
    argument,
    every_object,
    is_loaded_model,
    is_made_by,
    model_of_optimizer,
    receiver_made_by,
    result_of_call_event,
    tokenizer_of_trainer,
    tokenizer_whose_attribute_is_set,
    tokenizer_with_new_tokens,
)
from truetune.checks.source.evidence.training_protocol.protocol_records import (
    START,
    ActedObject,
    Action,
    BrokenOrder,
    Protocol,
    State,
    Transition,
)
from truetune.source.symbolic_execution.trace_of_events import CallEvent, Event
from truetune.source.symbolic_execution.values_of_run import Library, Result

DTYPES = ("torch.float16", "torch.bfloat16", "torch.float32", "torch.half", "torch.float")


def _model_of_loaded_optimizer(event: Event) -> ActedObject:
    """The model of an optimizer that gets a saved state."""
    if not isinstance(event, CallEvent) or not is_made_by(event.receiver, OPTIMIZERS):
        return None
    return model_of_optimizer(event.receiver)


def _model_of_stepping_optimizer(event: Event) -> ActedObject:
    """The model of an optimizer that steps."""
    receiver = event.receiver if isinstance(event, CallEvent) else None
    return model_of_optimizer(receiver)


def _moved_model(event: Event) -> ActedObject:
    """The model that is moved to another device; nothing where `.to` changes its dtype alone."""
    if not isinstance(event, CallEvent) or not is_loaded_model(event.receiver):
        return None
    names = [given.name for given in event.args if isinstance(given, Library)]
    is_cast = event.method == "to" and (not event.args or any(name in DTYPES for name in names))
    return None if is_cast else event.receiver


def _saved_wrapper(event: Event) -> ActedObject:
    """The model inside DistributedDataParallel whose wrapper is asked for `save_pretrained`."""
    wrapper = event.receiver if isinstance(event, CallEvent) else None
    if not isinstance(wrapper, Result) or not wrapper.call.named(DISTRIBUTED_WRAPPERS[0]):
        return None
    return wrapper


ACCELERATE_STATE = Protocol(
    name="accelerate-state",
    title="The state that accelerate saves and loads",
    family="saving",
    about="an `Accelerator`",
    states=(
        State("made", "it has nothing to load a state into"),
        State("prepared", "it knows what it has prepared"),
        State("loaded early", "it has loaded a state before it knew an object"),
        State("loaded", "it has loaded a state"),
    ),
    actions=(
        Action("make", "Accelerator()", result_of_call_event, functions=ACCELERATORS),
        Action(
            "prepare",
            "accelerator.prepare(...)",
            receiver_made_by(ACCELERATORS),
            methods=("prepare", "prepare_model"),
        ),
        Action(
            "load state",
            "accelerator.load_state(...)",
            receiver_made_by(ACCELERATORS),
            methods=("load_state",),
        ),
        Action(
            "register",
            "accelerator.register_for_checkpointing(...)",
            receiver_made_by(ACCELERATORS),
            methods=("register_for_checkpointing",),
        ),
    ),
    transitions=(
        Transition("make", "made"),
        Transition("prepare", "prepared", ("made", "loaded early")),
        Transition("load state", "loaded early", ("made",)),
        Transition("load state", "loaded", ("prepared",)),
    ),
    broken_orders=(
        BrokenOrder(
            "state-loaded-before-prepare",
            "loaded early",
            "prepare",
            "the state is loaded before anything is prepared: accelerate knows no model or"
            " optimizer yet, so nothing is restored and the run starts from the beginning",
            "call accelerator.load_state after accelerator.prepare",
            "https://huggingface.co/docs/accelerate/usage_guides/checkpoint",
        ),
        BrokenOrder(
            "registered-after-load",
            "loaded",
            "register",
            "the object is registered after the state was loaded: its saved state is not restored",
            "call register_for_checkpointing before accelerator.load_state",
            "https://huggingface.co/docs/accelerate/usage_guides/checkpoint",
            severity="warning",
        ),
    ),
)

OPTIMIZER_STATE = Protocol(
    name="optimizer-state",
    title="The saved state of an optimizer and the device of its model",
    family="saving",
    about="a model whose optimizer is resumed",
    states=(
        State("state loaded", "its optimizer got a saved state, on the device of the model"),
        State("moved late", "it was moved to another device after that"),
    ),
    actions=(
        Action(
            "load optimizer state",
            "optimizer.load_state_dict(...)",
            _model_of_loaded_optimizer,
            methods=("load_state_dict",),
        ),
        Action("move", "model.to(device)", _moved_model, methods=("to", "cuda")),
        Action("step", "optimizer.step()", _model_of_stepping_optimizer, methods=("step",)),
    ),
    transitions=(
        Transition("load optimizer state", "state loaded"),
        Transition("move", "moved late", ("state loaded",)),
    ),
    broken_orders=(
        BrokenOrder(
            "moved-after-optimizer-state",
            "moved late",
            "step",
            "the model is moved after its optimizer got the saved state, which stays on the old"
            " device: the first step fails with tensors on two devices",
            "move the model first, then create the optimizer and load its state",
            "https://github.com/pytorch/pytorch/issues/2830",
            shows_past=True,
        ),
    ),
    silenced_by=(".state.values()", ".state.items()"),
)

WRAPPED_SAVE = Protocol(
    name="wrapped-save",
    title="A wrapped model that is saved",
    family="saving",
    about="a model inside DistributedDataParallel",
    states=(State("wrapped", "DistributedDataParallel holds it as `module`"),),
    actions=(
        Action(
            "wrap",
            "DistributedDataParallel(model)",
            argument(0, "module"),
            functions=DISTRIBUTED_WRAPPERS[:2],
        ),
        Action(
            "save wrapper",
            "wrapped.save_pretrained(...)",
            _saved_wrapper,
            methods=("save_pretrained", "push_to_hub", "generate"),
        ),
    ),
    transitions=(Transition("wrap", "wrapped"),),
    broken_orders=(
        BrokenOrder(
            "method-of-the-model-on-wrapper",
            "wrapped",
            "save wrapper",
            "DistributedDataParallel has no such method: the script stops with an AttributeError,"
            " after the training",
            "call the method on wrapped.module",
            "https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html",
        ),
    ),
)

SAVED_TOKENIZER = Protocol(
    name="saved-tokenizer",
    title="A saved tokenizer and its later changes",
    family="saving",
    about="a tokenizer",
    states=(
        State("saved", "it is saved"),
        State("kept by trainer", "a trainer saves it with the model"),
        State("changed late", "it got tokens or a chat template after it was saved"),
    ),
    actions=(
        Action(
            "save",
            "tokenizer.save_pretrained(...)",
            receiver_made_by(TOKENIZERS),
            methods=("save_pretrained", "push_to_hub"),
        ),
        Action(
            "make trainer",
            "Trainer(processing_class=tokenizer)",
            tokenizer_of_trainer,
            functions=TRAINERS,
        ),
        Action(
            "add tokens",
            "tokenizer.add_tokens([...])",
            tokenizer_with_new_tokens,
            methods=("add_tokens", "add_special_tokens"),
        ),
        Action(
            "set template",
            "tokenizer.chat_template = ...",
            tokenizer_whose_attribute_is_set,
            attributes=("chat_template",),
        ),
        Action("end", "the end of the script", every_object, is_end=True),
    ),
    transitions=(
        Transition("save", "saved", (START, "saved", "changed late")),
        Transition("make trainer", "kept by trainer"),
        Transition("add tokens", "changed late", ("saved",)),
        Transition("set template", "changed late", ("saved",)),
    ),
    broken_orders=(
        BrokenOrder(
            "changed-after-tokenizer-saved",
            "changed late",
            "end",
            "the tokenizer is changed after it was saved, and never saved again: the saved one"
            " lacks these tokens or this template",
            "call tokenizer.save_pretrained after the last change",
            "https://huggingface.co/docs/transformers/main_classes/tokenizer#transformers.PreTrainedTokenizerBase.save_pretrained",
            severity="warning",
            shows_past=True,
        ),
    ),
)

PROTOCOLS_OF_SAVES = (ACCELERATE_STATE, OPTIMIZER_STATE, WRAPPED_SAVE, SAVED_TOKENIZER)
