"""A call that all processes must make together is reached by only one process.

## What it does
Looks for `trainer.evaluate`, `predict` and `train`, `barrier`, `all_reduce`, `all_gather`, `gather` and
`wait_for_everyone` (also of a callback's `self.trainer`, and `self.log(sync_dist=True)` of a LightningModule) inside
`if rank == 0`, `if is_main_process` and the like, after `if rank != 0: return`, and in functions that are called under
such a condition.

If the weights are sharded (FSDP, ZeRO-3), every process must also take part in saving and generating: `get_state_dict`
and `save_state` of an accelerator, `summon_full_params` and `full_tensor` of FSDP, `torch.distributed.checkpoint`,
DeepSpeed's `save_16bit_model`, `generate` and `save_model`. Whether they are sharded is read from the script, the
command that starts it, or a configuration next to it. It is a warning if only such a configuration, or a name, says so.
`save_checkpoint` of a DeepSpeed engine waits for all processes at every stage.

A callback that sets `control.should_training_stop` on one process has the same effect. So has, in a hand-written loop
(DistributedDataParallel, FSDP, DeepSpeed, accelerate, Fabric), a `break` or `continue` on one rank (also by a flag that
it sets), or one that each process decides by its own loss, rows, clock, or caught exception: one process leaves, and
the others wait in the next backward pass.

## Why it is bad
The one process waits for the others, which never come. The run hangs until a time-out (half an hour), often at its very
end.

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
Safe: call it on all processes (one per GPU) and print or save on one.

## References
- huggingface/transformers#26724, huggingface/accelerate#2536, FareedKhan-dev/train-llm-from-scratch#32
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.does_lightning_start_several_processes import (
    is_in_lightning_module,
)
from truetune.checks.source.evidence.does_script_train_sharded_weights import (
    Sharding,
    sharding_of_script,
)
from truetune.checks.source.evidence.loop_exits_by_one_process import (
    OWN_EXCEPTION,
    LoopExit,
    loop_exits_by_one_process,
    multi_process_model_preparations,
)
from truetune.checks.source.evidence.one_process_conditions import is_one_process_test
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

TRAINER_METHODS = frozenset(("evaluate", "predict", "train"))
ACCELERATOR_METHODS = frozenset(
    ("gather", "gather_for_metrics", "reduce", "wait_for_everyone", "pad_across_processes")
)
TORCH_COLLECTIVES = (
    "torch.distributed.barrier",
    "torch.distributed.all_*",
    "torch.distributed.broadcast*",
)
LIGHTNING_LOGS = frozenset(("log", "log_dict"))
GATHERING_METHODS = frozenset(("get_state_dict", "save_state"))
"""Methods of an accelerator that gather the weights of all processes, where each holds a part of them"""
GATHERS_OF_TORCH = (
    "torch.distributed.checkpoint.*state_dict",
    "torch.distributed.checkpoint.save",
    "torch.distributed.checkpoint.async_save",
    "torch.distributed.checkpoint.load",
    "torch.*.FullyShardedDataParallel.*optim_state_dict",
    "torch.*.FullyShardedDataParallel.summon_full_params",
)
"""Functions that do so of a model they are given"""
SHARD_METHODS = frozenset(("full_tensor", "save_16bit_model"))
"""Methods of sharded tensors and models, of whatever name"""
GATHERED_FIRST = re.compile(
    r"GatheredParameters|summon_full_params|unwrap_model_for_generation|vllm"
)
"""Signs that a model which generates holds all its weights, or is another one"""
DECISIONS = frozenset(("should_training_stop", "should_epoch_stop", "should_evaluate"))
"""What a callback of a Trainer sets, and each process follows by itself"""
WAITING_METHODS = ("wait_for_everyone",)
"""Several may belong together: one process first, the others behind it"""
ONE_PROCESS_DECORATOR = re.compile(
    r"(?:.*\.)?(?:on_(?:local_)?main_process|rank_zero_only|master_only)\b"
)
"""Functions that are skipped on every process but the first"""
LEAVING_STATEMENTS = (ast.Return, ast.Continue, ast.Break)
BRANCHES = (ast.If, ast.IfExp, ast.BoolOp, ast.Match, ast.ExceptHandler, ast.Lambda)
"""What may keep a call from being reached"""
OTHER_PROCESSES_TEST = re.compile(
    r"(?:[\w.]*(?:local_)?rank|[\w.]*get_rank\(\)|[\w.]*process_index)\s*(?:!=|>)\s*0"
    r"|not [\w.]*(?:is_(?:local_)?main_process|is_(?:world|local)_process_zero(?:\(\))?|is_global_zero)"
)
"""All processes but the first"""


def _collective_calls(module: Module) -> Iterator[Call]:
    """Calls that wait for all processes, or do where the weights are sharded."""
    return (
        call
        for call in module.all_calls
        if _does_call_wait_for_all_processes(module, call) or _gathers_sharded_weights(module, call)
    )


def _control_assignments_in_callbacks(module: Module) -> Iterator[ast.Assign]:
    """Where a callback tells the trainer to stop or to evaluate: `control.should_training_stop = True`."""
    for node in module.nodes(ast.Assign):
        target = node.targets[0]
        if isinstance(target, ast.Attribute) and target.attr in DECISIONS:
            if isinstance(node.value, ast.Constant) and node.value.value is True:
                yield node


def _collective_calls_and_wrapped_models(module: Module) -> Iterator[object]:
    """Calls that wait for all processes, and models that a hand-written loop wraps for several
    processes.
    """
    yield from _collective_calls(module)
    yield from multi_process_model_preparations(module)
    yield from _control_assignments_in_callbacks(module)


class CollectiveCallOnOneRank(SourceRule):
    code = "SRC050"
    fault = Fault.PROCESSES_WAIT_FOR_EACH_OTHER
    severity = "error"
    since = "0.1.0"
    looks_at = CodePlaces("calls that wait for all processes", _collective_calls_and_wrapped_models)

    def findings(self) -> Iterator[Finding]:
        """Findings on calls which all processes must make and only one does."""
        yield from self._findings_on_guarded_collective_calls()
        for left in loop_exits_by_one_process(self.subject):
            yield self._finding_on_loop_exit(left)
        for decision in _control_assignments_in_callbacks(self.subject):
            guard = _one_process_condition(self.subject, decision)
            if guard is not None:
                yield self._finding_on_callback_decision(decision, guard)

    def _findings_on_guarded_collective_calls(self) -> Iterator[Finding]:
        """Findings on collective calls under a condition that one process meets."""
        module = self.subject
        waits = [
            call
            for call in module.all_calls
            if call.method in WAITING_METHODS or call.named(*TORCH_COLLECTIVES[:1])
        ]
        for call in _collective_calls(module):
            if len(waits) > 1 and call in waits:
                continue
            guard = _one_process_condition(module, call.node)
            if guard is None:
                continue
            if not _gathers_sharded_weights(module, call):
                yield self._finding_on_conditional_collective_call(call, guard, None)
                continue
            sharding = _sharding_of_run(module, guard)
            if sharding is not None:
                yield self._finding_on_conditional_collective_call(call, guard, sharding)

    def _finding_on_loop_exit(self, left: LoopExit) -> Finding:
        """The finding on a process that leaves the loop in another way than the others."""
        module = self.subject
        place = module.place(left.test)[0]
        if left.cause == OWN_EXCEPTION:
            does = "skips a backward pass"
            remedy = (
                "let the exception end the run and avoid it (smaller batches, shorter rows), or all_reduce a flag in"
                " each step and skip the step on all processes"
            )
            evidence = (
                f"what is caught in line {place}: {module.text_of(left.test).partition(chr(10))[0]}"
            )
        else:
            skips = isinstance(left.node, ast.Continue)
            does = "skips a backward pass" if skips else "leaves the loop"
            remedy = (
                "all_reduce the value (or broadcast the decision of rank 0) before the condition, so that all"
                " processes decide the same"
            )
            evidence = f"the condition in line {place}: {ast.unparse(left.test)}"
        return self.finding(
            f"one process {does} {left.cause}, and the others wait for it in the next backward pass",
            remedy,
            severity="error" if left.is_certain else "warning",
            evidence=[evidence],
            cases=[case_of_node(module, left.node)],
        )

    def _finding_on_callback_decision(self, decision: ast.Assign, guard: ast.expr) -> Finding:
        """The finding on what a callback tells the trainer of one process alone."""
        module = self.subject
        name = ast.unparse(decision.targets[0])
        return self.finding(
            f"{name} is set on only one process: its trainer stops or evaluates without the others, which wait for it"
            " in the next backward pass or evaluation",
            "decide on every process by the same values (metrics of Trainer.evaluate are the same on all), or"
            " broadcast the decision of rank 0",
            evidence=[f"the condition in line {module.place(guard)[0]}: {ast.unparse(guard)}"],
            cases=[case_of_node(module, decision)],
        )

    def _finding_on_conditional_collective_call(
        self, call: Call, guard: ast.expr, sharding: Sharding | None
    ) -> Finding:
        """The finding on one call under a condition; `sharding` where only that makes it wait."""
        module = self.subject
        home = module.home(guard)
        of_file = "" if home.path == module.path else f" of {Path(home.path).name}"
        evidence = [
            f"the condition in line {module.place(guard)[0]}{of_file}: {ast.unparse(guard)}"
        ]
        if sharding is not None:
            evidence.append(
                f"{sharding.how} ({sharding.where}): every process has to contribute its part of the weights"
            )
        return self.finding(
            f"{module.text_of(call.node.func)} runs on only one process, and waits for all the others: the run hangs",
            "call it on every process, before the condition; keep only what follows (printing, saving) under it",
            severity="error" if sharding is None or sharding.certain else "warning",
            evidence=evidence,
            cases=[
                case_of_node(module, call.node),
                *([case_of_node(module, guard)] if of_file else []),
            ],
        )


def _sharding_of_run(module: Module, guard: ast.expr) -> Sharding | None:
    """How the weights are sharded in the code that runs with the condition.

    The call may stand in a helper of another file, and the condition in the script that shards the model. Another
    script with the same helper runs apart.
    """
    shardings = (
        sharding_of_script(part) for part in module.home(guard).self_and_files_run_together
    )
    return next((one for one in shardings if one is not None), None)


def _does_call_wait_for_all_processes(module: Module, call: Call) -> bool:
    """Does a call wait for all processes, however the weights are held?"""
    if call.receiver is None:
        return call.named(*TORCH_COLLECTIVES)
    kinds = module.flow.types(call.receiver)
    if call.method == "save_checkpoint":
        return _is_deepspeed_engine(module, call.receiver)
    if call.method in LIGHTNING_LOGS or call.method == "all_gather":
        return _is_lightning_collective(module, call)
    is_trainer = "trainer" in kinds or _is_trainer_of_a_callback(module, call.receiver)
    return (is_trainer and call.method in TRAINER_METHODS) or (
        "accelerator" in kinds and call.method in ACCELERATOR_METHODS
    )


def _is_lightning_collective(module: Module, call: Call) -> bool:
    """Is the call `self.log(..., sync_dist=True)` or `self.all_gather(...)` of a LightningModule?"""
    if not isinstance(call.receiver, ast.Name) or call.receiver.id != "self":
        return False
    if not is_in_lightning_module(module, call.node):
        return False
    is_reduced = module.flow.value(call.keywords.get("sync_dist")) is True
    return is_reduced or call.method == "all_gather"


def _is_deepspeed_engine(module: Module, receiver: ast.expr) -> bool:
    """Is the receiver what `deepspeed.initialize` gives back?"""
    return any(
        isinstance(origin.node, ast.Call)
        and module.flow.name(origin.node.func) == "deepspeed.initialize"
        for origin in module.flow.origins(receiver)
    )


def _is_trainer_of_a_callback(module: Module, receiver: ast.expr) -> bool:
    """Is the receiver `self.trainer` in a callback of the Trainer, which the script sets from
    outside?
    """
    if not isinstance(receiver, ast.Attribute) or receiver.attr.strip("_") != "trainer":
        return False
    owner = next((one for one in module.parents(receiver) if isinstance(one, ast.ClassDef)), None)
    return owner is not None and any(
        base.endswith("TrainerCallback") for base in module.flow.bases(owner)
    )


def _gathers_sharded_weights(module: Module, call: Call) -> bool:
    """Does a call gather the weights of a model where they are sharded?"""
    if call.receiver is None:
        return call.named(*GATHERS_OF_TORCH) and "no_dist" not in call.keywords
    kinds = module.flow.types(call.receiver)
    if call.method == "save_model":
        return "trainer" in kinds or _is_trainer_of_a_callback(module, call.receiver)
    if call.method == "generate":
        is_model = "model" in kinds or _is_model_of_a_callback(module, call.receiver)
        return is_model and not GATHERED_FIRST.search(module.text)
    if call.method == "state_dict":
        return _is_in_fsdp_state_dict_type(module, call)
    return call.method in SHARD_METHODS or (
        call.method in GATHERING_METHODS and "accelerator" in kinds
    )


def _is_in_fsdp_state_dict_type(module: Module, call: Call) -> bool:
    """Does a call stand in `with FSDP.state_dict_type(...)`, where it gathers the full state?"""
    return any(
        isinstance(parent, ast.With)
        and any("state_dict_type" in ast.unparse(item.context_expr) for item in parent.items)
        for parent in module.parents(call.node)
    )


def _is_model_of_a_callback(module: Module, receiver: ast.expr) -> bool:
    """Is the receiver the model that a trainer gives its callbacks: `def on_evaluate(self, args,
    ..., model=None)`?
    """
    if not isinstance(receiver, ast.Name) or receiver.id != "model":
        return False
    return any(
        binding.kind == "parameter"
        and any(
            isinstance(parent, ast.FunctionDef) and parent.name.startswith("on_")
            for parent in module.parents(binding.node)
        )
        for binding in module.scopes.bindings_that_reach(receiver)
    )


def _one_process_condition(module: Module, node: ast.AST, depth: int = 3) -> ast.expr | None:
    """The condition that only one process meets: around the place, before it with a `return`, or around a call of its
    function."""
    inner = node
    for parent in module.parents(node):
        if isinstance(parent, ast.Lambda):
            return None
        left = _condition_others_leave_by(module, parent, inner)
        if left is not None:
            return left
        if isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef):
            return _one_process_decorator(parent) or _condition_around_every_call(
                module, parent, node, depth
            )
        if (
            isinstance(parent, ast.If)
            and inner in parent.body
            and is_one_process_test(module, parent.test)
        ):
            return (
                None if _do_statements_make_collective_call(module, parent.orelse) else parent.test
            )
        inner = parent
    return None


def _one_process_decorator(function: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.expr | None:
    """The decorator by which only one process runs a function; None where it has none."""
    return next(
        (
            part
            for part in function.decorator_list
            if ONE_PROCESS_DECORATOR.match(ast.unparse(part))
        ),
        None,
    )


def _do_statements_make_collective_call(
    module: Module, statements: list[ast.stmt], depth: int = 2
) -> bool:
    """Do these statements make a collective call, the partner of one that other processes make?"""
    calls = [
        module.flow.call(part)
        for statement in statements
        for part in ast.walk(statement)
        if isinstance(part, ast.Call)
    ]
    if any(
        _does_call_wait_for_all_processes(module, call) or _gathers_sharded_weights(module, call)
        for call in calls
    ):
        return True
    functions = (module.flow.function_called(call.node.func) for call in calls) if depth else ()
    return any(
        _do_statements_make_collective_call(module, function.body, depth - 1)
        for function in functions
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
    )


def _condition_others_leave_by(
    module: Module, block: ast.AST, statement: ast.AST
) -> ast.expr | None:
    """The condition with which all processes but one leave a block (`return`, `continue`) before one of its statements.

    None where they make a collective call before they leave, which may be the partner of this one.
    """
    body = getattr(block, "body", None)
    if not isinstance(body, list) or statement not in body:
        return None
    for before in body[: body.index(statement)]:
        if isinstance(before, ast.If) and isinstance(before.body[-1], LEAVING_STATEMENTS):
            if _is_condition_met_by_all_but_one_process(
                module, before.test
            ) and not _do_statements_make_collective_call(module, before.body):
                return before.test
    return None


def _is_condition_met_by_all_but_one_process(module: Module, test: ast.expr) -> bool:
    """Do all processes but the first meet the condition: `rank != 0`, `not self.is_writer`?"""
    if OTHER_PROCESSES_TEST.fullmatch(ast.unparse(test)):
        return True
    if not isinstance(test, ast.UnaryOp) or not isinstance(test.op, ast.Not):
        return False
    return is_one_process_test(module, test.operand)


def _condition_around_every_call(
    module: Module, function: ast.AST, node: ast.AST, depth: int
) -> ast.expr | None:
    """The condition around a call of a function.

    Where another call of it has none, the function may find out by itself how many processes come: it counts only
    where each call of the function reaches the place.
    """
    callers = module.flow.calls_of_function_or_class(function) if depth else []
    guards = [(caller, _one_process_condition(module, caller, depth - 1)) for caller in callers]
    if all(guard is not None for _, guard in guards):
        return next((guard for _, guard in guards), None)
    certain = (
        guard
        for caller, guard in guards
        if guard is not None and _calls_by_plain_name_or_self(caller)
    )
    return next(certain, None) if _is_place_reached_by_each_function_call(module, node) else None


def _calls_by_plain_name_or_self(caller: ast.Call) -> bool:
    """Does a call name the function itself, or a method of its own class? Any other may be of another class."""
    owner = caller.func.value if isinstance(caller.func, ast.Attribute) else None
    return isinstance(caller.func, ast.Name) or (
        isinstance(owner, ast.Name) and owner.id in ("self", "cls")
    )


def _is_place_reached_by_each_function_call(module: Module, node: ast.AST) -> bool:
    """Does each call of the function around a place reach it: under no condition, and behind none that leaves?"""
    inner = node
    for parent in module.parents(node):
        if isinstance(parent, BRANCHES):
            return False
        body = getattr(parent, "body", None)
        before = body[: body.index(inner)] if isinstance(body, list) and inner in body else []
        if any(
            isinstance(part, LEAVING_STATEMENTS) for earlier in before for part in ast.walk(earlier)
        ):
            return False
        if isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef):
            return True
        inner = parent
    return False
