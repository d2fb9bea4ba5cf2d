"""Finds the object of a protocol that an event acts on: the receiver of a method, an argument, the result.

The trade-off: an object is known by the call that made it, or by the name of a parameter that nobody gives. What a
helper of an unknown library made is no object of a protocol.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterator

from truetune.checks.source.evidence.optimizers_before_adapters import models_of_parameters
from truetune.checks.source.evidence.training_protocol.protocol_records import (
    EVERY_OBJECT,
    ActedObject,
)
from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.trace_back_to_load import Lineage, lineages_back_to_origins
from truetune.source.symbolic_execution.trace_of_events import (
    CallEvent,
    Event,
    StoreEvent,
    is_constant_none,
)
from truetune.source.symbolic_execution.values_of_run import (
    Attribute,
    Constant,
    Element,
    Item,
    Library,
    Mapping,
    Parameter,
    Result,
    Sequence,
    Value,
    options_of_choice,
    parts_of_value,
)

FindObject = Callable[[Event], ActedObject]
TRAINERS = ("transformers.*Trainer", "trl.*Trainer", "unsloth.*Trainer")
ACCELERATORS = ("accelerate.Accelerator", "accelerate.*.Accelerator")
GRADIENT_SCALERS = ("torch.*GradScaler",)
OPTIMIZERS = (
    "torch.optim.*",
    "bitsandbytes.optim.*",
    "transformers.Adafactor",
    "transformers.AdamW",
)
SCHEDULERS = (
    "torch.optim.lr_scheduler.*",
    "transformers.get_*schedule*",
    "transformers.optimization.get_*schedule*",
)
TOKENIZERS = (
    "transformers.*Tokenizer*.from_pretrained",
    "transformers.*Processor.from_pretrained",
    "unsloth*.get_chat_template",
)
DISTRIBUTED_SAMPLERS = ("torch.utils.data.*DistributedSampler",)
DISTRIBUTED_WRAPPERS = (
    "torch.nn.parallel.*DistributedDataParallel",
    "torch.nn.parallel.DistributedDataParallel",
    "torch.distributed.fsdp.*FullyShardedDataParallel",
)
ADAPTER_WRAPPERS = (
    "peft.get_peft_model",
    "peft.PeftModel*.from_pretrained",
    "unsloth.Fast*Model.get_peft_model",
)
NO_OPTIMIZERS = ("torch.optim.lr_scheduler.*", "torch.optim.swa_utils.*")
"""What is called like an optimizer and is none"""
NO_MODELS = (
    "*Tokenizer*",
    "*Config.*",
    "*Processor.*",
    "*FeatureExtractor*",
)
"""What has a `from_pretrained` and is no model"""
MODEL_LOADS = ("transformers.*.from_pretrained", "unsloth.Fast*Model.from_pretrained")
NAMES_OF_PARAMETERS: dict[tuple[str, ...], tuple[str, ...]] = {
    ACCELERATORS: ("accelerator",),
    GRADIENT_SCALERS: ("scaler", "grad_scaler"),
    OPTIMIZERS: ("optimizer", "optim", "opt"),
    SCHEDULERS: ("scheduler", "lr_scheduler"),
    TOKENIZERS: ("tokenizer", "tok"),
}
"""Makers of an object -> names of parameters that say the same where nobody gives them"""
PARTS_OF_MODEL = frozenset(
    ("parameters", "named_parameters", "modules", "named_modules", "children", "named_children")
)
"""Methods that give parts of a model"""
PASSES_ON = ("list", "tuple", "filter", "enumerate", "reversed", "itertools.chain")
"""Functions that give the parts that they are given"""
MAX_DEPTH = 16
"""Attributes, items and loops between a weight and its model: about six"""


def is_made_by(value: Value | None, makers: tuple[str, ...]) -> bool:
    """Did one of these functions make an object, or is it a parameter of that name?

    Args:
        value: The object.
        makers: Patterns of the qualified names of what makes it.

    Returns:
        False also where the object may be one of several and one of them is made by something else.
    """
    if value is None:
        return False
    names = NAMES_OF_PARAMETERS.get(makers, ())
    for way in ways_to_objects(value):
        if isinstance(way.origin, Parameter):
            if way.origin.name not in names:
                return False
        elif way.call_that_gave_origin is None or not _is_named_maker(
            way.call_that_gave_origin, makers
        ):
            return False
    return True


def ways_to_objects(value: Value) -> list[Lineage]:
    """The ways back from a value to what it may be; without None, which has no methods that are called.

    `scaler = GradScaler() if half else None` is a scaler wherever it is used.
    """
    ways = lineages_back_to_origins(value)
    objects = [way for way in ways if not is_constant_none(way.origin)]
    return objects or ways


def _is_named_maker(call_event: CallEvent, makers: tuple[str, ...]) -> bool:
    """Is what was called one of these makers?"""
    is_other = makers is OPTIMIZERS and call_event.named(*NO_OPTIMIZERS)
    return call_event.named(*makers) and not is_other


def receiver_made_by(makers: tuple[str, ...]) -> FindObject:
    """The receiver of a method, where one of these functions made it."""

    def find(event: Event) -> ActedObject:
        receiver = event.receiver if isinstance(event, CallEvent) else None
        return receiver if is_made_by(receiver, makers) else None

    return find


def receiver(event: Event) -> ActedObject:
    """The receiver of a method, whatever it is."""
    return event.receiver if isinstance(event, CallEvent) else None


def result_of_call_event(event: Event) -> ActedObject:
    """What a call makes."""
    return event.result if isinstance(event, CallEvent) else None


def argument(position: int, *names: str) -> FindObject:
    """The argument of one of these names, or at this position."""

    def find(event: Event) -> ActedObject:
        return argument_of(event, position, *names)

    return find


def argument_of(event: Event, position: int, *names: str) -> Value | None:
    """The argument of a call of one of these names, or at this position; None where it has none."""
    if not isinstance(event, CallEvent):
        return None
    given = (event.keywords.get(name) for name in names)
    named = next((one for one in given if one is not None), None)
    if named is not None:
        return named
    return event.args[position] if 0 <= position < len(event.args) else None


def every_object(event: Event) -> ActedObject:
    """Each object of the protocol, for the call names none."""
    return EVERY_OBJECT


def unless_receiver_made_by(*makers: tuple[str, ...]) -> FindObject:
    """Each object of the protocol; nothing where one of these functions made the receiver."""

    def find(event: Event) -> ActedObject:
        receiver = event.receiver if isinstance(event, CallEvent) else None
        return None if any(is_made_by(receiver, one) for one in makers) else EVERY_OBJECT

    return find


def only_call_object_comes_from(value: Value | None) -> CallEvent | None:
    """The one call that an object comes from; None where there are several, or none is known."""
    ways = [] if value is None else ways_to_objects(value)
    return ways[0].call_that_gave_origin if len(ways) == 1 else None


def is_loaded_model(value: Value | None) -> bool:
    """Was a model loaded with `from_pretrained`?"""
    loads = [] if value is None else [way.call_that_gave_origin for way in ways_to_objects(value)]
    return bool(loads) and all(map(_loads_model, loads))


def _loads_model(load: CallEvent | None) -> bool:
    """Is it a call that loads a model?"""
    return load is not None and load.named(*MODEL_LOADS) and not load.named(*NO_MODELS)


def loaded_model(event: Event) -> ActedObject:
    """The model that a call of `from_pretrained` loads."""
    if not isinstance(event, CallEvent) or event.named(*NO_MODELS):
        return None
    return event.result


def model_owning_weight_or_module(value: Value) -> Value:
    """The model that a weight or module belongs to: `model` of `p` in `model.parameters()`."""
    for _ in range(MAX_DEPTH):
        inner = _direct_owner_of_part(value)
        if inner is None:
            return value
        value = inner
    return value


def _direct_owner_of_part(value: Value) -> Value | None:
    """What a part is directly a part of; None for no part."""
    if isinstance(value, Attribute | Item):
        return value.base
    if isinstance(value, Element):
        return value.iterable
    if isinstance(value, Result) and value.call.method in PARTS_OF_MODEL:
        return value.call.receiver
    if isinstance(value, Result) and value.call.named(*PASSES_ON) and value.call.args:
        return value.call.args[-1]
    return None


def model_with_attribute_set(attribute: str) -> FindObject:
    """The model whose `model.ATTRIBUTE.x` is set: `model` of `model.config.rope_theta = 1e6`."""

    def find(event: Event) -> ActedObject:
        base = event.base if isinstance(event, StoreEvent) else None
        if not isinstance(base, Attribute) or base.name != attribute:
            return None
        return base.base

    return find


def model_of_trainer(trainer: Value | None) -> Value | None:
    """The model that a trainer was made with; None where that is not known."""
    call_event = only_call_object_comes_from(trainer)
    if call_event is None or not call_event.named(*TRAINERS):
        return None
    return call_event.argument(0, "model")


def model_that_trainer_trains(event: Event) -> ActedObject:
    """The model of `trainer.train()`."""
    return model_of_trainer(event.receiver) if isinstance(event, CallEvent) else None


def each_object_when_training_begins(event: Event) -> ActedObject:
    """Each object, at `trainer.train()` or a backward pass; nothing for `model.train()`."""
    if not isinstance(event, CallEvent):
        return None
    if event.method == "train":
        return EVERY_OBJECT if is_made_by(event.receiver, TRAINERS) else None
    return EVERY_OBJECT


def model_of_optimizer(optimizer: Value | None) -> Value | None:
    """The one model whose parameters an optimizer was given; None where that is not known."""
    call_event = only_call_object_comes_from(optimizer)
    params_argument = (
        call_event.argument(0, "params")
        if call_event is not None and call_event.named(*OPTIMIZERS)
        else None
    )
    models = None if params_argument is None else models_of_parameters(params_argument)
    return models[0] if models is not None and len(models) == 1 else None


def stepping_optimizer(event: Event) -> ActedObject:
    """The optimizer that steps: by itself, or by a GradScaler."""
    if not isinstance(event, CallEvent):
        return None
    if is_made_by(event.receiver, GRADIENT_SCALERS):
        return event.argument(0, "optimizer")
    # A step with a closure computes its gradients itself.
    is_plain = not event.args and is_made_by(event.receiver, OPTIMIZERS)
    return event.receiver if is_plain else None


def each_object_when_gradients_are_clipped(event: Event) -> ActedObject:
    """Each object, at a call that clips; nothing where the limit is infinite, which only measures."""
    if not isinstance(event, CallEvent) or is_made_by(event.receiver, ACCELERATORS):
        return None
    position = 0 if event.method is not None else 1
    limit = argument_of(event, position, "max_norm", "clip_value")
    plain = None if limit is None else constant_of(limit)
    is_infinite = isinstance(plain, float) and math.isinf(plain)
    names_inf = isinstance(limit, Library) and limit.name.endswith(("inf", "Infinity"))
    return None if is_infinite or names_inf else EVERY_OBJECT


def scaler_of_backward(event: Event) -> ActedObject:
    """The scaler of `scaler.scale(loss).backward()`."""
    receiver = event.receiver if isinstance(event, CallEvent) else None
    options = () if receiver is None else options_of_choice(receiver)
    # An object of the script may stand for the scaler where there is no half precision: it gives the loss back.
    scaled = [one for one in options if isinstance(one, Result) and one.call.method == "scale"]
    return enabled_scaler(scaled[0].call.receiver) if len(scaled) == 1 else None


def enabled_scaler(value: Value | None) -> Value | None:
    """A GradScaler; None where it is made with `enabled=False`, or is no scaler."""
    if not is_made_by(value, GRADIENT_SCALERS):
        return None
    call_event = only_call_object_comes_from(value)
    enabled = None if call_event is None else call_event.argument(-1, "enabled")
    return None if enabled is not None and constant_of(enabled) is False else value


def frozen_whole_model(event: Event) -> ActedObject:
    """The model all of whose weights one call freezes."""
    if not isinstance(event, CallEvent):
        return None
    requires_grad_argument = event.argument(0, "requires_grad")
    is_off = requires_grad_argument is not None and constant_of(requires_grad_argument) is False
    return event.receiver if is_off else None


def unfrozen_part(event: Event) -> ActedObject:
    """The model of which a part is unfrozen."""
    if isinstance(event, CallEvent):
        requires_grad_argument = event.argument(0, "requires_grad")
        is_on = requires_grad_argument is None or constant_of(requires_grad_argument) is True
        return (
            model_owning_weight_or_module(event.receiver)
            if is_on and event.receiver is not None
            else None
        )
    if isinstance(event, StoreEvent) and constant_of(event.value) is not False:
        return model_owning_weight_or_module(event.base)
    return None


def unfrozen_part_but_embedding(event: Event) -> ActedObject:
    """The model of which a part is unfrozen that is no embedding.

    Embeddings get a gradient only to start reentrant checkpointing, and no optimizer holds them.
    """
    part = event.base if isinstance(event, StoreEvent) else None
    part = event.receiver if isinstance(event, CallEvent) else part
    options = () if part is None else options_of_choice(part)
    return None if any(map(_is_in_embedding, options)) else unfrozen_part(event)


def _is_in_embedding(part: Value) -> bool:
    """Is a weight or module inside an embedding, by the names of what holds it?"""
    inner: Value | None = part
    for _ in range(MAX_DEPTH):
        if isinstance(inner, Attribute) and "embed" in inner.name:
            return True
        inner = None if inner is None else _direct_owner_of_part(inner)
    return False


def tokenizer_with_new_tokens(event: Event) -> ActedObject:
    """The tokenizer that gets new tokens, as far as the script says it."""
    if not isinstance(event, CallEvent) or not is_made_by(event.receiver, TOKENIZERS):
        return None
    given = argument_of(event, 0, "new_tokens", "special_tokens_dict")
    texts = [] if given is None else list(_texts_in(given))
    # Published vocabularies hold tokens in reserve that are called `<|...|>`: those may be there already.
    has_new = any(not text.startswith("<|") for text in texts)
    # Whoever adds plain tokens wants new ones; a role may be given to a token that is there.
    adds_unknown = event.method == "add_tokens" and not texts
    return event.receiver if has_new or adds_unknown else None


def _texts_in(value: Value) -> Iterator[str]:
    """The texts that are written in a list or dictionary of tokens."""
    if isinstance(value, Constant) and isinstance(value.value, str):
        yield value.value
    elif isinstance(value, Sequence | Mapping):
        for part in parts_of_value(value):
            yield from _texts_in(part)


def tokenizer_whose_length_resize_takes(event: Event) -> ActedObject:
    """The tokenizer of `model.resize_token_embeddings(len(tokenizer))`; None with spare rows."""
    if not isinstance(event, CallEvent) or "pad_to_multiple_of" in event.keywords:
        return None
    length = event.argument(0, "new_num_tokens")
    if isinstance(length, Result) and length.call.named("len") and length.call.args:
        return length.call.args[0]
    return None


def event_number_of_length_computation(event: Event) -> int | None:
    """The number of the event at which the length was computed that a resize is given."""
    length = event.argument(0, "new_num_tokens") if isinstance(event, CallEvent) else None
    return length.call.number if isinstance(length, Result) else None


def tokenizer_that_writes_rows(event: Event) -> ActedObject:
    """The tokenizer that encodes or renders rows: in `map`, or in a loop or comprehension."""
    if not isinstance(event, CallEvent) or not is_made_by(event.receiver, TOKENIZERS):
        return None
    kinds = {frame.kind for frame in event.frames()}
    in_map = any(
        frame.given_to is not None and frame.given_to.method == "map"
        for frame in event.frames("callback")
    )
    return event.receiver if in_map or kinds & {"loop", "comprehension"} else None


def tokenizer_that_pads(event: Event) -> ActedObject:
    """The tokenizer that pads a batch."""
    if not isinstance(event, CallEvent) or not is_made_by(event.receiver, TOKENIZERS):
        return None
    padding = event.keywords.get("padding")
    pads = event.method == "pad" or (padding is not None and constant_of(padding) is not False)
    return event.receiver if pads else None


def tokenizer_that_gets_left_side(event: Event) -> ActedObject:
    """The tokenizer that is set to pad on the left."""
    if not isinstance(event, StoreEvent) or constant_of(event.value) != "left":
        return None
    load = only_call_object_comes_from(event.base)
    was_left = load is not None and "padding_side" in load.keywords
    return None if was_left else tokenizer_whose_attribute_is_set(event)


def each_tokenizer_when_generating(event: Event) -> ActedObject:
    """Each tokenizer, at a generation of a loaded model."""
    receiver = event.receiver if isinstance(event, CallEvent) else None
    return EVERY_OBJECT if is_loaded_model(receiver) else None


def tokenizer_of_trainer(event: Event) -> ActedObject:
    """The tokenizer that a trainer is made with."""
    return argument_of(event, -1, "processing_class", "tokenizer")


def tokenizer_whose_attribute_is_set(event: Event) -> ActedObject:
    """The tokenizer whose attribute is set."""
    base = event.base if isinstance(event, StoreEvent) else None
    return base if is_made_by(base, TOKENIZERS) else None


def tokenizer_whose_pad_id_is_taken(event: Event) -> ActedObject:
    """The tokenizer whose `pad_token_id` goes to a setting or an argument of that name."""
    taken: Value | None = None
    if isinstance(event, StoreEvent):
        taken = event.value
    elif isinstance(event, CallEvent):
        taken = event.keywords.get("pad_token_id")
    if not isinstance(taken, Attribute) or taken.name != "pad_token_id":
        return None
    return taken.base if is_made_by(taken.base, TOKENIZERS) else None


def is_result_dropped(event: Event) -> bool:
    """Does nothing take what a call returns?"""
    return isinstance(event.home.scopes.parent.get(event.node), ast.Expr)


def sampler_of_prepared_loader(event: Event) -> ActedObject:
    """The DistributedSampler of a loader that accelerate is given."""
    if not isinstance(event, CallEvent) or not is_made_by(event.receiver, ACCELERATORS):
        return None
    for given in event.args:
        loader = only_call_object_comes_from(given)
        if loader is None or not loader.named("torch.utils.data.*DataLoader"):
            continue
        sampler = loader.argument(3, "sampler")
        if is_made_by(sampler, DISTRIBUTED_SAMPLERS):
            return sampler
    return None


def is_inside_wrapper(value: Value) -> bool:
    """Is a model called through DistributedDataParallel, FSDP or what accelerate made of it?"""
    inner: Value | None = value
    for _ in range(MAX_DEPTH):
        if isinstance(inner, Item):
            inner = inner.base
        if not isinstance(inner, Result):
            return False
        if inner.call.named(*DISTRIBUTED_WRAPPERS) or inner.call.method == "prepare":
            return True
        inner = inner.call.receiver or argument_of(inner.call, 0, "model")
    return False
