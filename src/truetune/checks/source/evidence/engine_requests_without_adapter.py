"""Finds engines that a script makes with room for adapters (vLLM, SGLang, LMDeploy), and requests
to them that name no adapter.

An engine keeps room for adapters and uses one only for requests that name it; all others are
answered by the base, without a word. So is what `unload()` of PEFT gives back: it takes the adapter
off and merges nothing.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.source.evidence.nodes_that_an_expression_is_computed_from import backward_slice
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module


class AdapterEngine(NamedTuple):
    """An engine that takes adapters."""

    made_by: tuple[str, ...]
    """What makes it, or its settings"""
    switch: str
    """The argument that makes room for adapters"""
    methods: tuple[str, ...]
    """Its requests; empty where it is called itself"""
    argument: str
    """What names the adapter in a request"""
    remedy: str


ENGINES = (
    AdapterEngine(
        ("vllm.LLM", "vllm.*.LLM", "vllm.*EngineArgs"),
        "enable_lora",
        ("generate", "chat", "beam_search", "add_request"),
        "lora_request",
        'lora_request=LoRARequest("tuned", 1, FOLDER)',
    ),
    AdapterEngine(
        ("sglang.Engine", "sglang.*.Engine"),
        "lora_paths",
        ("generate", "async_generate"),
        "lora_path",
        "lora_path=[NAME] * len(prompts), one for each prompt",
    ),
    AdapterEngine(
        ("lmdeploy.PytorchEngineConfig", "lmdeploy.*.PytorchEngineConfig"),
        "adapters",
        ("stream_infer", "batch_infer", "infer"),
        "adapter_name",
        "adapter_name=NAME",
    ),
)
ASKING_METHODS = ("generate", "evaluate", "predict")


class UnnamedAdapter(NamedTuple):
    """An engine with room for adapters, and the requests that name none."""

    engine: AdapterEngine
    made: Call
    requests: list[Call]


def adapter_engines(module: Module) -> Iterator[tuple[AdapterEngine, Call]]:
    """The engines, or their settings, that are made with room for adapters."""
    for engine in ENGINES:
        for call in module.calls(*engine.made_by):
            if _adapters_are_switched_on(module, call, engine.switch):
                yield engine, call


def engine_whose_requests_lack_adapter(module: Module) -> UnnamedAdapter | None:
    """An engine that takes adapters and of whose requests surely none names one; None where there
    is none.

    A request that may name one (`**kwargs`, an argument that is computed) proves nothing; one that
    does names the comparison with the base.
    """
    for engine, made in adapter_engines(module):
        # A function that may be given a request is somebody else's to call.
        named = re.compile(rf"\b(?:{engine.argument}|LoRARequest)\b")
        if any(named.search(part.text) for part in module.self_and_files_run_together):
            continue
        requests = list(_requests_to_engines(module, engine))
        if requests and all(request.lacks(engine.argument) for request in requests):
            return UnnamedAdapter(engine, made, requests)
    return None


def first_answer_if_all_by_unloaded_model(module: Module) -> Call | None:
    """The first answer, where all are made by what `unload()` gave back; None where any is not."""
    unloaded = {
        call.node
        for call in module.methods("unload")
        if call.receiver is not None and "peft-model" in module.flow.types(call.receiver)
    }
    if not unloaded:
        return None
    answers = [
        call
        for call in module.methods(*ASKING_METHODS)
        if call.receiver is not None and module.flow.types(call.receiver) & {"model", "peft-model"}
    ]
    if not answers or not all(
        _is_answer_of_unloaded_model(module, call, unloaded) for call in answers
    ):
        return None
    return answers[0]


def _adapters_are_switched_on(module: Module, call: Call, switch: str) -> bool:
    """Is an engine made with room for adapters, by a keyword or by one of a dictionary that is laid
    out in the call?
    """
    argument = call.keywords.get(switch)
    if argument is not None:
        # What only the command line knows may be on; what is surely off is not.
        return module.flow.value(argument) is not False and not _is_off_value(argument)
    unpacked = [keyword.value for keyword in call.node.keywords if keyword.arg is None]
    return any(_dictionary_sets_key(module, part, switch) for part in unpacked) or any(
        _key_is_assigned(module, part, switch) for part in unpacked
    )


def _dictionary_sets_key(module: Module, value: ast.expr, key: str) -> bool:
    """Does a dictionary, or what it comes from, set a key to something that is on?"""
    for node in backward_slice(module, value):
        if isinstance(node, ast.Call):
            pairs = [(one.arg, one.value) for one in node.keywords]
        elif isinstance(node, ast.Dict):
            pairs = [
                (str(one.value) if isinstance(one, ast.Constant) else None, two)
                for one, two in zip(node.keys, node.values, strict=True)
            ]
        else:
            continue
        if any(name == key and not _is_off_value(value) for name, value in pairs):
            return True
    return False


def _is_off_value(value: ast.expr) -> bool:
    """Is it written as False or None?"""
    return isinstance(value, ast.Constant) and not value.value


def _key_is_assigned(module: Module, value: ast.expr, key: str) -> bool:
    """Is the key set in the dictionary of that name: `settings["enable_lora"] = True`?"""
    name = ast.unparse(value)
    for node in module.nodes(ast.Assign):
        target = node.targets[0]
        is_key = (
            isinstance(target, ast.Subscript)
            and ast.unparse(target.value) == name
            and isinstance(target.slice, ast.Constant)
            and target.slice.value == key
        )
        if is_key and not _is_off_value(node.value):
            return True
    return False


def _requests_to_engines(module: Module, engine: AdapterEngine) -> Iterator[Call]:
    """The requests to engines of this kind, in all files that run together."""
    for part in module.self_and_files_run_together:
        for call in part.all_calls:
            asked = call.receiver if call.method in engine.methods else None
            if call.method is None:
                asked = call.node.func
            if _is_adapter_engine(part, asked, engine):
                yield call


def _is_adapter_engine(module: Module, value: ast.expr | None, engine: AdapterEngine) -> bool:
    """Is a value such an engine, or one that was made of its settings?"""
    if value is None:
        return False
    family = engine.made_by[0].partition(".")[0]
    for origin in module.flow.origins(value):
        if not isinstance(origin.node, ast.Call):
            continue
        made = module.flow.call(origin.node)
        if made.named(*engine.made_by):
            return True
        if made.named(f"{family}.*") and not made.named("*LoRARequest", "*SamplingParams"):
            return True
    return False


def _is_answer_of_unloaded_model(module: Module, answer: Call, unloaded: set[ast.Call]) -> bool:
    """Is an answer made by what `unload` gave back?"""
    assert answer.receiver is not None
    origins = [origin.node for origin in module.flow.origins(answer.receiver)]
    return bool(unloaded & module.flow.calls_value_passes_from_origins(answer.receiver)) or any(
        node in unloaded for node in origins
    )
