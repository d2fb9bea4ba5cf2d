"""A call that all processes must make together stands under a condition that only one process meets.

## What it does
Looks for `trainer.evaluate`, `predict` and `train`, `barrier`, `all_reduce`, `all_gather`, `gather` and
`wait_for_everyone` inside `if rank == 0`, `if is_main_process` and the like, behind `if rank != 0: return`, and in
functions that are called under such a condition alone. `accelerator.get_state_dict` and `save_state` are such calls
where the script, the command that starts it or a configuration beside it shards the weights (FSDP, ZeRO-3): every
process gives its part; so does each in `generate` and `save_model` of a sharded model. Where only a configuration
beside it says so, it is a warning. In a loop of DistributedDataParallel, a `break` by a validation loss of this process
alone is another: one process leaves, and the others wait in the next backward pass.

## Why it is bad
The one process waits for the others, which never come: the run hangs until a time-out of half an hour, often at its
very end.

## Example
```python
from transformers import AutoModelForCausalLM, Trainer

trainer = Trainer(model=AutoModelForCausalLM.from_pretrained("model"))
trainer.train()
if trainer.is_world_process_zero():
    print(trainer.evaluate())
```

## Use instead
```python
from transformers import AutoModelForCausalLM, Trainer

trainer = Trainer(model=AutoModelForCausalLM.from_pretrained("model"))
trainer.train()
metrics = trainer.evaluate()
if trainer.is_world_process_zero():
    print(metrics)
```

## Fix safety
Calling it on all processes and printing on one is safe.

## References
- huggingface/transformers#26724, huggingface/accelerate#2536, FareedKhan-dev/train-llm-from-scratch#32
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from truetune.checks.code_places import CodePlaces
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.exits_by_rank import exits_by_rank
from truetune.checks.source.own_processes import wrapped_models
from truetune.checks.source.places import at
from truetune.checks.source.sharding import Sharding, sharding_of
from truetune.source.calls import Call
from truetune.source.module import Module

OF_TRAINER = frozenset(("evaluate", "predict", "train"))
OF_ACCELERATOR = frozenset(
    ("gather", "gather_for_metrics", "reduce", "wait_for_everyone", "pad_across_processes")
)
OF_TORCH = ("torch.distributed.barrier", "torch.distributed.all_*", "torch.distributed.broadcast*")
GATHERS = frozenset(("get_state_dict", "save_state"))
"""Methods of an accelerator that gather the weights of all processes, where each holds a part of them"""
GATHERED_FIRST = re.compile(
    r"GatheredParameters|summon_full_params|unwrap_model_for_generation|vllm"
)
"""Signs that a model which generates holds all its weights, or is another one"""
WAITS = ("wait_for_everyone",)
"""Several may belong together: one process first, the others behind it"""
ONE = re.compile(
    r"is_(local_)?main_process|is_(world|local)_process_zero|\b(local_)?rank\s*==\s*0|get_rank\(\)\s*==\s*0|"
    r"process_index\s*==\s*0"
)

OTHERS = re.compile(
    r"(?:[\w.]*(?:local_)?rank|[\w.]*get_rank\(\)|[\w.]*process_index)\s*(?:!=|>)\s*0"
    r"|not [\w.]*(?:is_(?:local_)?main_process|is_(?:world|local)_process_zero(?:\(\))?)"
)
"""All processes but the first"""


def _collective_calls(module: Module) -> Iterator[Call]:
    """Calls that wait for all processes, or do where the weights are sharded."""
    return (
        call
        for call in module.all_calls
        if _is_collective(module, call) or _gathers_weights(module, call)
    )


def _places(module: Module) -> Iterator[object]:
    """Such calls, and models that a loop of one's own wraps for several processes."""
    yield from _collective_calls(module)
    yield from wrapped_models(module)


class CollectiveCallOnOneRank(SourceRule):
    code = "TT745"
    severity = "error"
    looks_at = CodePlaces("calls that wait for all processes", _places)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        waits = [
            call for call in module.all_calls if call.method in WAITS or call.named(*OF_TORCH[:1])
        ]
        for call in _collective_calls(module):
            if len(waits) > 1 and call in waits:
                continue
            guard = _guard(module, call.node)
            if guard is None:
                continue
            if not _gathers_weights(module, call):
                yield self._finding(call, guard, None)
                continue
            sharding = sharding_of(module)
            if sharding is not None:
                yield self._finding(call, guard, sharding)

        for left in exits_by_rank(module):
            yield self.finding(
                "one process leaves the loop by figures of its own rows, and the others wait for it in the next"
                " backward pass",
                "all_reduce the figure (or broadcast the decision of rank 0) before the condition",
                evidence=[
                    f"the condition in line {module.place(left.test)[0]}: {ast.unparse(left.test)}"
                ],
                cases=[at(module, left.node)],
            )

    def _finding(self, call: Call, guard: ast.expr, sharding: Sharding | None) -> Finding:
        """What one call under a condition does; `sharding` where only that makes it wait."""
        module = self.subject
        evidence = [f"the condition in line {module.place(guard)[0]}: {ast.unparse(guard)}"]
        if sharding is not None:
            evidence.append(
                f"{sharding.how} ({sharding.where}): every process has to give its part of the weights"
            )
        return self.finding(
            f"{module.text_of(call.node.func)} runs on one process alone, and waits for all",
            "call it on every process, and keep only what follows (printing, saving) on one",
            severity="error" if sharding is None or sharding.certain else "warning",
            evidence=evidence,
            cases=[at(module, call.node)],
        )


def _is_collective(module: Module, call: Call) -> bool:
    if call.receiver is None:
        return call.named(*OF_TORCH)
    kinds = module.flow.kinds(call.receiver)
    return ("trainer" in kinds and call.method in OF_TRAINER) or (
        "accelerator" in kinds and call.method in OF_ACCELERATOR
    )


def _gathers_weights(module: Module, call: Call) -> bool:
    """Does it gather the weights, where they are sharded?"""
    if call.receiver is None:
        return False
    kinds = module.flow.kinds(call.receiver)
    if call.method == "save_model":
        return "trainer" in kinds
    if call.method == "generate":
        is_model = "model" in kinds or _is_model_of_a_callback(module, call.receiver)
        return is_model and not GATHERED_FIRST.search(module.text)
    return call.method in GATHERS and "accelerator" in kinds


def _is_model_of_a_callback(module: Module, receiver: ast.expr) -> bool:
    """Is it the model that a trainer gives to its callbacks: `def on_evaluate(self, args, ..., model=None)`?"""
    if not isinstance(receiver, ast.Name) or receiver.id != "model":
        return False
    return any(
        binding.kind == "parameter"
        and any(
            isinstance(parent, ast.FunctionDef) and parent.name.startswith("on_")
            for parent in module.parents(binding.node)
        )
        for binding in module.scopes.reaching(receiver)
    )


def _guard(module: Module, node: ast.AST, depth: int = 3) -> ast.expr | None:
    """The condition that only one process meets: around the place, before it with a `return`, or around each call of
    its function."""
    inner = node
    for parent in module.parents(node):
        if isinstance(parent, ast.Lambda):
            return None
        if isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef):
            return _left_by_others(module, parent, inner) or _guard_of_calls(module, parent, depth)
        if isinstance(parent, ast.If) and inner in parent.body:
            text = ast.unparse(parent.test)
            if ONE.search(text) and not re.search(r"\bnot\b|\bor\b|!=", text):
                return None if _joins(module, parent.orelse) else parent.test
        inner = parent
    return None


def _joins(module: Module, statements: list[ast.stmt]) -> bool:
    """Do these statements make a collective call, the partner of one that other processes make?"""
    calls = (
        module.flow.call(part)
        for statement in statements
        for part in ast.walk(statement)
        if isinstance(part, ast.Call)
    )
    return any(_is_collective(module, call) or _gathers_weights(module, call) for call in calls)


def _left_by_others(module: Module, function: ast.AST, statement: ast.AST) -> ast.expr | None:
    """The condition with which all processes but one return before a statement of a function's body.

    None where they make a collective call before they return, which may be the partner of this one.
    """
    body = function.body if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) else []
    for before in body:
        if before is statement:
            return None
        if isinstance(before, ast.If) and isinstance(before.body[-1], ast.Return):
            others = OTHERS.fullmatch(ast.unparse(before.test))
            if others and not _joins(module, before.body):
                return before.test
    return None


def _guard_of_calls(module: Module, function: ast.AST, depth: int) -> ast.expr | None:
    """The condition around the calls of a function, where each has one; None where a call has none."""
    callers = module.flow.calls_of(function) if depth else []
    guards = [_guard(module, caller, depth - 1) for caller in callers]
    return guards[0] if guards and all(guards) else None
