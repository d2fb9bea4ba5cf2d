"""Finds models that one process spreads over its GPUs layer by layer, and trains."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from truetune.checks.source.evidence.device_maps_spreading_model_over_gpus import (
    SPREADING_DEVICE_MAPS,
)
from truetune.checks.source.evidence.possible_values_of_expressions import possible_texts
from truetune.checks.source.evidence.process_counts import is_kept_from_several_processes
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

OPTIMIZERS = ("torch.optim.*", "bitsandbytes.optim.*", "transformers.Adafactor")
ADAPTERS = ("peft.*Config", "peft.get_peft_model", "trl.get_peft_config")
"""Calls that make an adapter, which is trained instead of all weights"""
LARGE_CARDS = (
    (re.compile(r"h100|h200|b200", re.I), 80.0),
    (re.compile(r"a100|a6000|\bl40|\ba40\b", re.I), 40.0),
)
SMALL_CARD = 24.0
"""GB of the smallest GPU that machines with several hold, where nothing names another"""
DEPTH = 4
"""Calls that wrap a model: for training in 4 bits, by PEFT, by accelerate"""
BYTES_OF_ADAM = 16.0
"""Bytes for each trained parameter: weight, gradient and two states, in float32"""


def spread_load_of_trained_model(module: Module) -> Call | None:
    """The call that loads the model that the file trains, and spreads it; None where there is none.

    A limit of memory for each GPU (`max_memory`) says that the split is meant.
    """
    loads = [call for call in module.all_calls if _loads_model_spread_over_gpus(module, call)]
    trained = [node for node in _trained_models(module) if node is not None]
    return next(
        (
            load
            for load in loads
            if any(_is_made_from_load(module, node, load.node) for node in trained)
        ),
        None,
    )


def _is_made_from_load(module: Module, model: ast.expr, load: ast.Call, depth: int = DEPTH) -> bool:
    """Is a model what a call loads, or made of that: by `get_peft_model`, `prepare`, `.to(...)`?"""
    for origin in module.flow.origins(model):
        if origin.node is load:
            return True
        if not isinstance(origin.node, ast.Call) or not depth:
            continue
        call = module.flow.call(origin.node)
        inner = [*call.args, *([call.receiver] if call.receiver is not None else [])]
        if "model" in call.keywords:
            inner.append(call.keywords["model"])
        if any(_is_made_from_load(module, part, load, depth - 1) for part in inner):
            return True
    return False


def may_fit_one_gpu(module: Module, billions: float | None, command_file: str) -> bool:
    """May a model of so many billions of parameters be trained on one of the GPUs, as command and
    script name them?
    """
    is_adapter = any(module.calls(*ADAPTERS))
    if billions is None:
        return is_adapter
    width = (
        0.6 if module.mentions("load_in_4bit") else 1.1 if module.mentions("load_in_8bit") else 2
    )
    needed = billions * (width if is_adapter else BYTES_OF_ADAM)
    # A script's own comments name the machine as often as the job file does.
    texts = f"{command_file}\n{module.text}"
    card = next((size for name, size in LARGE_CARDS if name.search(texts)), SMALL_CARD)
    return needed < card


def _loads_model_spread_over_gpus(module: Module, call: Call) -> bool:
    """Does a call load a model, and spread it over the GPUs whatever their number?"""
    if "device_map" not in call.keywords or "max_memory" in call.keywords or call.open:
        return False
    if "model" not in module.flow.types(call.node) or is_kept_from_several_processes(
        module, call.node
    ):
        return False
    texts = possible_texts(module, call.keywords["device_map"])
    return bool(texts) and all(text in SPREADING_DEVICE_MAPS for text in texts)


def _trained_models(module: Module) -> Iterator[ast.expr | None]:
    """The models that trainers are given, and those whose parameters an optimizer of a loop of
    one's own takes.
    """
    if module.mentions(".train("):
        for call in module.calls("transformers.*Trainer", "trl.*Trainer"):
            yield call.argument(0, "model")
    if module.mentions(".backward("):
        for call in module.calls(*OPTIMIZERS):
            for part in ast.walk(call.node):
                if isinstance(part, ast.Attribute) and part.attr.endswith("parameters"):
                    yield part.value
