"""Finds functions that are given an adapter or the name of a model, and that load or ask a model
without reading that parameter.

Only functions count that a file calls itself, with a value for that parameter: a signature that
another library asks for (a method of a subclass, a decorated handler) may have parameters which
nobody needs.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.source.evidence.generate_call_inputs import generate_calls
from truetune.checks.source.evidence.text_generation_calls import model_questions
from truetune.source.parsed_source_file import Module

ADAPTER_NAME = re.compile(r"(?:^|_)(?:lora|adapters?|peft)(?:$|_(?:path|dir|folder|name|request))")
"""Names of parameters that take an adapter"""
MODEL_NAME = re.compile(r"^(?:model(?:_name|_id|_path|_dir)?|checkpoint|ckpt)$")
"""Names of parameters that take one model or another"""
LOADS = ("transformers.AutoModel*.from_pretrained", "transformers.pipeline", "vllm.LLM")
READS_ALL = ("locals", "vars", "super")
"""Functions through which a parameter is read without its name"""


class UnreadAdapter(NamedTuple):
    """A parameter that nothing reads."""

    function: str
    parameter: ast.arg
    remedy: str


def unread_adapter_parameters(module: Module) -> Iterator[UnreadAdapter]:
    """The parameters for an adapter or a model that a function leaves unread which loads or asks a
    model.
    """
    asking: set[ast.AST] = {call.node for call in generate_calls(module)}
    asking.update(question.call.node for question in model_questions(module))
    loading: set[ast.AST] = {call.node for call in module.calls(*LOADS)}
    for function in _functions_with_own_signature(module):
        inside = set(ast.walk(function))
        if not inside & (asking | loading):
            continue
        is_engine = bool(inside & asking) and "vllm" in module.text
        for parameter in _unread_parameters(function):
            if _is_given_an_adapter_or_two_models(module, function, parameter):
                yield UnreadAdapter(
                    function.name,
                    parameter,
                    _advice_to_use_parameter(parameter, is_engine=is_engine),
                )


def _functions_with_own_signature(module: Module) -> Iterator[ast.FunctionDef]:
    """The functions whose signature is the file's own choice, and that read a parameter only by its
    name.
    """
    for function in module.nodes(ast.FunctionDef):
        is_method = isinstance(module.scopes.parent.get(function), ast.ClassDef)
        if not (
            function.decorator_list or is_method or _may_read_parameters_without_name(function)
        ):
            yield function


def _may_read_parameters_without_name(function: ast.FunctionDef) -> bool:
    """May a parameter be read without its name?"""
    return any(isinstance(part, ast.Name) and part.id in READS_ALL for part in ast.walk(function))


def _unread_parameters(function: ast.FunctionDef) -> Iterator[ast.arg]:
    """The parameters of an adapter or a model whose names stand nowhere in the body."""
    arguments = function.args
    names = {part.id for part in ast.walk(function) if isinstance(part, ast.Name)}
    for parameter in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
        is_one = ADAPTER_NAME.search(parameter.arg) or MODEL_NAME.match(parameter.arg)
        if is_one and parameter.arg not in names:
            yield parameter


def _is_given_an_adapter_or_two_models(
    module: Module, function: ast.FunctionDef, parameter: ast.arg
) -> bool:
    """Do the calls of the file give the parameter an adapter, or two models, of which one is not
    used?
    """
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    position = positional.index(parameter) if parameter in positional else -1
    calls = [module.flow.call(node) for node in module.flow.calls_of_function_or_class(function)]
    given = [call.argument(position, parameter.arg) for call in calls]
    texts = {ast.unparse(one) for one in given if one and module.flow.value(one) is not None}
    # One model alone may be named for a report; an adapter is named to be used.
    return len(texts) >= (1 if ADAPTER_NAME.search(parameter.arg) else 2)


def _advice_to_use_parameter(parameter: ast.arg, *, is_engine: bool) -> str:
    """The advice how the function would use the parameter that it is given."""
    if not ADAPTER_NAME.search(parameter.arg):
        return f"load or ask the model that {parameter.arg} names"
    if is_engine:
        return f"lora_request={parameter.arg} in generate and chat"
    return f"PeftModel.from_pretrained(base, {parameter.arg})"
