"""Finds how a model that is asked for text was loaded, and what was put around it on the way.

A model is followed from the call that asks it to the call that loads its weights, with all that is
put around it on the way. One way that is not seen to its end makes the whole unknown: a guess about
weights would accuse the wrong file.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.source.evidence.loads_of_trained_and_asked_models import NAME_ARGUMENTS
from truetune.checks.source.evidence.possible_values_of_expressions import possible_texts
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.infer_object_types import MEMBERS_GIVING_THE_OBJECT
from truetune.source.parsed_source_file import Module

WRAPPING_CALLS = (
    "peft.PeftModel*",
    "peft.get_peft_model",
    "torch.compile",
    "optimum.bettertransformer.BetterTransformer.transform",
)
"""Calls that put something on the model that they are given"""
LOADING_CALLS = ("transformers.*.from_pretrained", "peft.AutoPeftModel*.from_pretrained")
UNWRAPPING_METHODS = ("merge_and_unload", "unload", "get_base_model")
EIGHT_BIT_OPTION = "load_in_8bit"
MAX_STEPS = 12
"""Calls between a generation and what loads its weights; scripts have up to five"""
BILLIONS_IN_NAME = re.compile(r"(?<![\w.])(\d{1,3}(?:\.\d+)?)[bB](?![a-z])")
"""`7B` in a model's name: billions of parameters"""


class ModelChain(NamedTuple):
    """How one model came about."""

    load: Call
    """What loads the weights"""
    steps: tuple[Call, ...]
    """What is done to it afterwards: `.to("cuda")`, an adapter, a merge; from the last to the first"""


def model_chains(module: Module, model: ast.expr) -> list[ModelChain] | None:
    """The ways in which a model may have been loaded and wrapped; None where one of them is not
    seen to its end.
    """
    found: list[ModelChain] = []
    waiting: list[tuple[ast.AST, tuple[Call, ...]]] = [(model, ())]
    while waiting:
        part, steps = waiting.pop()
        for origin in module.flow.origins(part):
            if not isinstance(origin.node, ast.Call) or origin.path or len(steps) > MAX_STEPS:
                return None
            call = module.flow.call(origin.node)
            inner = _model_wrapped_by_call(call)
            if inner is not None:
                waiting.append((inner, (*steps, call)))
            elif call.named(*LOADING_CALLS):
                found.append(ModelChain(call, steps))
            else:
                return None
    return found


def _model_wrapped_by_call(call: Call) -> ast.expr | None:
    """The model that a call wraps; None where the call makes one itself, or is not known."""
    if call.method in MEMBERS_GIVING_THE_OBJECT or call.method in UNWRAPPING_METHODS:
        return call.receiver
    if call.named(*WRAPPING_CALLS) and not call.named("peft.AutoPeftModel*"):
        return call.argument(0, "model")
    return None


def billions_of_parameters_of_model(module: Module, load: Call) -> float | None:
    """The billions of parameters of a loaded model, as its name says them; None where it says none."""
    given = next((load.keywords[name] for name in NAME_ARGUMENTS if name in load.keywords), None)
    return billions_of_parameters_in_name(
        module, given if given is not None else load.argument(0, "")
    )


def billions_of_parameters_in_name(module: Module, name: ast.expr | None) -> float | None:
    """The billions of parameters that the name of a model says; None where it says none."""
    names = possible_texts(module, name)
    sizes = {
        float(size) for name in names for size in BILLIONS_IN_NAME.findall(name.replace("_", "-"))
    }
    return max(sizes) if sizes else None


def load_dtypes(module: Module, load: Call) -> Iterator[str]:
    """The dtype that weights are loaded in, as code names it: `torch.bfloat16`, `auto`."""
    for name in ("dtype", "torch_dtype"):
        if name in load.keywords:
            given = load.keywords[name]
            yield module.flow.name(given) or str(module.flow.value(given))


def is_float32_by_default(module: Module, load: Call) -> bool:
    """Does a call name no dtype under a transformers before 5, which then loads float32 whatever
    the weights are in?
    """
    named = {"dtype", "torch_dtype", "quantization_config", "load_in_4bit", EIGHT_BIT_OPTION}
    is_before = module.pins.age_of_asked_releases("transformers", "4.99", "5.0.0") == "older"
    return (
        is_before
        and not load.open
        and named.isdisjoint(load.keywords)
        and not load.named("unsloth.*")
    )
