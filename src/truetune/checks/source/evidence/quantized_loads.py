"""Finds the call that loaded the weights of a model in 4 or 8 bits, through adapters, wrappers and
trainers.

The trade-off: every way to a model must end in a load that is certainly quantized. A base that only
an option quantizes, or one that is dequantized on the way, counts as not quantized.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping

from truetune.checks.source.evidence.possible_values_of_expressions import possible_texts
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.find_quantization_configs_and_readers import BITSANDBYTES_CONFIG
from truetune.source.infer_object_types import MEMBERS_GIVING_THE_OBJECT
from truetune.source.parsed_source_file import Module

TRAINERS = ("transformers.*Trainer", "trl.*Trainer")
MODELS_OF_TRAINER = ("model", "model_wrapped")
"""Attributes of a trainer that hold what it trains"""
LOADS = ("transformers.*.from_pretrained", "peft.AutoPeftModel*.from_pretrained")
WRAPPERS = ("peft.*", "torch.compile", "*.DistributedDataParallel")
UNWRAPS = ("unwrap_model", "extract_model_from_parallel")
BITS_ARGUMENTS = ("load_in_4bit", "load_in_8bit")
QUANTIZED_REPOSITORY = re.compile(r"[-_]bnb[-_]?[48]-?bits?$", re.I)
"""Ends of names under which weights of bitsandbytes are published: `unsloth/Qwen2.5-7B-bnb-4bit`"""
# Chosen, not measured: base, PEFT's wrapper, a trainer, `.eval()`, a wrapper around it and one to spare.
DEPTH = 6


def quantized_load_of_model(module: Module, model: ast.expr) -> ast.Call | None:
    """The call that loaded the weights of this model with fewer bits; None where one way to it is
    another.
    """
    load = _quantized_load_inside_wrappers(module, model, 0)
    if load is None or _is_dequantized_anywhere(module, load):
        return None
    return load


def _quantized_load_inside_wrappers(module: Module, model: ast.expr, depth: int) -> ast.Call | None:
    """The quantized load of a model, after so many wrappers; None where one way is another.

    What is dequantized elsewhere is not looked for.
    """
    if depth > DEPTH:
        return None
    first = None
    for origin in module.flow.origins(model):
        load = _quantized_load_of_origin(module, origin.node, depth)
        if load is None:
            return None
        first = first or load
    return first


def _quantized_load_of_origin(module: Module, node: ast.AST, depth: int) -> ast.Call | None:
    """The quantized load behind one origin of a model."""
    if isinstance(node, ast.Attribute):
        return _quantized_load_of_attribute(module, node, depth)
    if not isinstance(node, ast.Call):
        return None
    call = module.flow.call(node)
    if _load_is_quantized(module, call):
        return node
    inner = _wrapped_model(call)
    return _quantized_load_inside_wrappers(module, inner, depth + 1) if inner is not None else None


def _quantized_load_of_attribute(
    module: Module, node: ast.Attribute, depth: int
) -> ast.Call | None:
    """The quantized load of `trainer.model`, and of `model.module`."""
    maker = module.flow.producing_call(node.value)
    if maker is not None and maker.named(*TRAINERS) and node.attr in MODELS_OF_TRAINER:
        return _quantized_load_of_trainer(module, maker, depth)
    if node.attr in MEMBERS_GIVING_THE_OBJECT:
        return _quantized_load_inside_wrappers(module, node.value, depth + 1)
    return None


def _quantized_load_of_trainer(module: Module, trainer: Call, depth: int) -> ast.Call | None:
    """The quantized load of the model that a trainer is given, or that it loads by name."""
    model = trainer.argument(0, "model")
    if model is None:
        return None
    if not isinstance(module.flow.value(model), str):
        return _quantized_load_inside_wrappers(module, model, depth + 1)
    settings = module.flow.producing_call(trainer.keywords.get("args"))
    model_init_kwargs_argument = (
        settings.keywords.get("model_init_kwargs") if settings is not None else None
    )
    if model_init_kwargs_argument is None:
        return None
    return (
        trainer.node
        if _arguments_quantize(
            module, module.flow.dict_entries_and_if_complete(model_init_kwargs_argument)[0]
        )
        else None
    )


def _wrapped_model(call: Call) -> ast.expr | None:
    """The model that a wrapper is given, or that a method gives again."""
    if call.named(*WRAPPERS):
        return call.argument(0, "model")
    if call.method in UNWRAPS:
        return call.argument(0, "model")
    return call.receiver if call.method in MEMBERS_GIVING_THE_OBJECT else None


def _load_is_quantized(module: Module, call: Call) -> bool:
    """Does a call load weights in 4 or 8 bits?"""
    if _has_load_in_4bit_or_8bit_on(module, call.keywords):
        return True
    if not call.named(*LOADS):
        return False
    if _is_quantizing_config(module, call.keywords.get("quantization_config")):
        return True
    names = possible_texts(module, call.argument(0, "pretrained_model_name_or_path"))
    return bool(names) and all(QUANTIZED_REPOSITORY.search(name) for name in names)


def _arguments_quantize(module: Module, arguments: Mapping[str, ast.expr]) -> bool:
    """Do the arguments of a load quantize?"""
    config = arguments.get("quantization_config")
    return _has_load_in_4bit_or_8bit_on(module, arguments) or _is_quantizing_config(module, config)


def _has_load_in_4bit_or_8bit_on(module: Module, arguments: Mapping[str, ast.expr]) -> bool:
    """Is `load_in_4bit` or `load_in_8bit` among these arguments, and True?"""
    return any(module.flow.value(arguments.get(name)) is True for name in BITS_ARGUMENTS)


def _is_quantizing_config(module: Module, config: ast.expr | None) -> bool:
    """Is it certainly a config of bitsandbytes, whichever way it was built?"""
    if config is None:
        return False
    origins = module.flow.origins(config)
    return all(_is_bitsandbytes_config(module, origin.node) for origin in origins)


def _is_bitsandbytes_config(module: Module, node: ast.AST) -> bool:
    """Does it build a config of bitsandbytes, with bits that are not switched off?"""
    if not isinstance(node, ast.Call):
        return False
    call = module.flow.call(node)
    if not call.named(BITSANDBYTES_CONFIG):
        return False
    given = [call.keywords[name] for name in BITS_ARGUMENTS if name in call.keywords]
    return not given or any(module.flow.value(bits) is not False for bits in given)


def _is_dequantized_anywhere(module: Module, load: ast.Call) -> bool:
    """Are the weights of this load brought back to 16 or 32 bits somewhere?"""
    return any(
        _quantized_load_inside_wrappers(module, model, 0) is load
        for model in _dequantized_models(module)
    )


def _dequantized_models(module: Module) -> Iterator[ast.expr]:
    """The models whose `dequantize` is called."""
    for call in module.methods("dequantize"):
        if call.receiver is not None:
            yield call.receiver
