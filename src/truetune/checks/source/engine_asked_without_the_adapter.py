"""An engine in the script takes adapters, and no request names one: the base answers.

## What it does
Looks for vLLM's `LLM(enable_lora=True)` (also through `**kwargs`, and of the asynchronous engines), SGLang's
`Engine(lora_paths=...)` and LMDeploy's `PytorchEngineConfig(adapters=...)`, and for the requests to such an engine. It
fires where none of them has a `lora_request` (`lora_path`, `adapter_name`). Of PEFT it looks at generations that all
stand in `with model.disable_adapter()`, or behind `model.unload()`, which takes the adapter off and merges nothing.

## Why it is bad
The engine keeps room for adapters and uses one only for requests that name it. All others are answered by the base,
without a word: the tuned model scores exactly what the base does.

## Example
```python
from vllm import LLM, SamplingParams

llm = LLM(model="some/base", enable_lora=True, max_lora_rank=16)
outputs = llm.chat(chats, SamplingParams(temperature=0.0))
```

## Use instead
```python
from vllm import LLM, SamplingParams
from vllm.lora.request import LoRARequest

llm = LLM(model="some/base", enable_lora=True, max_lora_rank=16)
adapter = LoRARequest("tuned", 1, "out/adapter")
outputs = llm.chat(chats, SamplingParams(temperature=0.0), lora_request=adapter)
```

## Fix safety
There is no automatic fix: the script may score the base on purpose. Pass the request where the adapter is meant, and
None for the base.

## References
- https://docs.vllm.ai/en/latest/features/lora.html (`lora_request` of `LLM.generate`)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.backward_slices import backward_slice
from truetune.checks.source.evidence.cases_and_fixes import case_at
from truetune.source.module import Module
from truetune.source.resolved_calls import Call


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
EVALUATING_METHODS = ("generate", "evaluate", "predict")
SAVING_METHODS = frozenset(("save_pretrained", "push_to_hub"))


def _switches(module: Module) -> Iterator[ast.AST]:
    """Where engines are made with room for adapters, and adapters of PEFT are taken off."""
    for engine in ENGINES:
        for call in module.calls(*engine.made_by):
            if _is_switched_on(module, call, engine.switch):
                yield call.node
    yield from (call.node for call in _adapters_switched_off(module))


class EngineAskedWithoutTheAdapter(SourceRule):
    code = "SRC227"
    symptoms = ("nothing-is-learned", "good-here-bad-there", "odd-metrics")
    severity = "error"
    looks_at = CodePlaces("engines with adapters, and adapters that are switched off", _switches)

    def findings(self) -> Iterator[Finding]:
        for engine in ENGINES:
            yield from self._of_engine(engine)
        yield from self._of_switched_off()

    def _of_engine(self, engine: AdapterEngine) -> Iterator[Finding]:
        """Requests to an engine with room for adapters, none of which names one."""
        module = self.subject
        made = [
            call
            for call in module.calls(*engine.made_by)
            if _is_switched_on(module, call, engine.switch)
        ]
        requests = list(_requests(module, engine))
        if not made or not requests:
            return
        # A request that may name one (`**kwargs`, an argument that is computed) proves nothing; one that does names
        # the comparison with the base.
        if any(not request.lacks(engine.argument) for request in requests):
            return
        yield self.finding(
            f"the engine takes adapters ({engine.switch}), and no request to it names one: the base answers",
            f"name the adapter in the request: {engine.remedy}",
            evidence=["answers and scores of such a run are exactly those of the base"],
            cases=[*(case_at(module, one.node) for one in requests), case_at(module, made[0].node)],
            count=len(requests),
        )

    def _of_switched_off(self) -> Iterator[Finding]:
        """Generations of PEFT that all stand where the adapter is off."""
        module = self.subject
        off = _adapters_switched_off(module)
        if not off:
            return
        answers = [
            call
            for call in module.methods(*EVALUATING_METHODS)
            if call.receiver is not None and module.flow.types(call.receiver) & {"model", "peft-model"}
        ]
        if not answers or any(not _is_off(module, call, off) for call in answers):
            return
        yield self.finding(
            f"all {len(answers)} generations of this script run without the adapter: it is switched off before",
            "generate outside of disable_adapter(), and merge with merge_and_unload() instead of unload()",
            cases=[*(case_at(module, one.node) for one in answers), case_at(module, off[0].node)],
            count=len(answers),
        )


def _is_switched_on(module: Module, call: Call, switch: str) -> bool:
    """Is an engine made with room for adapters, by a keyword or by one of a dictionary that is laid out in the call?"""
    given = call.keywords.get(switch)
    if given is not None:
        # What only the command line knows may be on; what is surely off is not.
        return module.flow.value(given) is not False and not _is_off_value(given)
    unpacked = [keyword.value for keyword in call.node.keywords if keyword.arg is None]
    return any(_sets_key(module, part, switch) for part in unpacked) or any(
        _key_is_assigned(module, part, switch) for part in unpacked
    )


def _sets_key(module: Module, value: ast.expr, key: str) -> bool:
    """Does a dictionary, or what it comes from, set a key to something that is on?"""
    for node in backward_slice(module, value):
        if isinstance(node, ast.Call):
            pairs = [(one.arg, one.value) for one in node.keywords]
        elif isinstance(node, ast.Dict):
            pairs = [
                (one.value if isinstance(one, ast.Constant) else None, two)
                for one, two in zip(node.keys, node.values, strict=True)
            ]
        else:
            continue
        if any(name == key and not _is_off_value(value) for name, value in pairs):
            return True
    return False


def _is_off_value(value: ast.expr) -> bool:
    """Is it False or None, as it is written?"""
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


def _requests(module: Module, engine: AdapterEngine) -> Iterator[Call]:
    """The requests to engines of this kind, in all files that run together."""
    for part in module.with_linked:
        for call in part.all_calls:
            if call.method in engine.methods and _is_engine(part, call.receiver, engine):
                yield call
            elif call.method is None and _is_engine(part, call.node.func, engine):
                yield call


def _is_engine(module: Module, value: ast.expr | None, engine: AdapterEngine) -> bool:
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


def _adapters_switched_off(module: Module) -> list[Call]:
    """`model.disable_adapter()` as a context, and `model.unload()`, of adapted models."""
    return [
        call
        for call in module.methods("disable_adapter", "unload")
        if call.receiver is not None and "peft-model" in module.flow.types(call.receiver)
    ]


def _is_off(module: Module, answer: Call, off: list[Call]) -> bool:
    """Is an answer generated where the adapter is off: in the context, or by what `unload` gave back?"""
    contexts = {call.node for call in off if call.method == "disable_adapter"}
    for around in module.parents(answer.node):
        if isinstance(around, ast.With) and any(
            item.context_expr in contexts for item in around.items
        ):
            return True
    unloaded = {call.node for call in off if call.method == "unload"}
    assert answer.receiver is not None
    origins = [origin.node for origin in module.flow.origins(answer.receiver)]
    passed = module.flow.calls_passed(answer.receiver)
    return bool(unloaded & passed) or any(node in unloaded for node in origins)
