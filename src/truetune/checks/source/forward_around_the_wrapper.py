"""Training on several GPUs calls the model without its wrapper, so gradients are never averaged.

## What it does
Follows the loss of each `backward()` to the forward pass that made it, and looks at what is called: `model.module(...)`
or `model.module.forward(...)` of DistributedDataParallel or FSDP, `unwrap_model(model)(...)` of a model that accelerate
prepared, `getattr(model, "module", model)(...)`, an attribute or property that contains the inner module (`self.net`),
or the bare model although a wrapper of it exists. Not reported: calls under `no_grad`, in evaluation and generation,
DeepSpeed (its engine reduces gradients in its own `backward`), and scripts that reduce gradients themselves.

Two other loops have the same effect and are reported: one whose backward passes all run under `model.no_sync()`, and
one that joins a process group and splits the rows (`DistributedSampler`, or a command that starts several processes)
but neither wraps its model nor exchanges gradients or weights.

## Why it is bad
The wrapper's forward pass prepares the exchange of gradients. Without it each process (one per GPU) updates its own
copy from its own rows: after one step there are as many models as GPUs, and the saved one has seen only a part of the
data. The losses look healthy on every rank. Two processes of PyTorch 2.13 had gradients of 1.0 and 2.0 where both
should have 1.5.

## Example
```python
import torch
from torch.nn.parallel import DistributedDataParallel
from transformers import AutoModelForCausalLM

torch.distributed.init_process_group("nccl")
torch.cuda.set_device(torch.distributed.get_rank())
model = DistributedDataParallel(AutoModelForCausalLM.from_pretrained("model").cuda())
for batch in loader:
    outputs = model.module(**batch)
    outputs.loss.backward()
```

## Use instead
```python
import torch
from torch.nn.parallel import DistributedDataParallel
from transformers import AutoModelForCausalLM

torch.distributed.init_process_group("nccl")
torch.cuda.set_device(torch.distributed.get_rank())
model = DistributedDataParallel(AutoModelForCausalLM.from_pretrained("model").cuda())
for batch in loader:
    outputs = model(**batch)
    outputs.loss.backward()
```

## Fix safety
Safe: the wrapper returns the same output as the inner model. Any other method of the model
(`model.module.compute_loss(...)`) must be called from its `forward`.

## References
- moojink/openvla-oft#160, rosinality/swapping-autoencoder-pytorch#22
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
from truetune.checks.source.evidence.backward_and_optimizer_step_calls import (
    backward_calls,
    possible_losses,
)
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.gradients_not_averaged_over_processes import unaveraged_passes
from truetune.checks.source.evidence.model_calls_bypassing_ddp_or_fsdp import (
    constructions_of_model,
    model_called_without_its_wrapper,
    models_given_to_wrappers,
)
from truetune.checks.source.evidence.nodes_that_an_expression_is_computed_from import (
    backward_slice,
    may_record_gradients,
)
from truetune.settings.stacks.find_who_reads_config_or_starts_script import (
    commands_that_launch_several_processes,
)
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module
from truetune.source.symbolic_execution.trace_of_events import CallEvent

GRADIENT_AVERAGING = re.compile(
    r"all_?reduce\w*\([^)\n]*grad|(sync|average|reduce|gather)\w*_grad", re.I
)
"""Signs that the script averages gradients itself; said of all files together"""


def _is_accelerator_method(module: Module, call: Call) -> bool:
    """Is a call a method of accelerate's Accelerator?"""
    return call.receiver is not None and "accelerator" in module.flow.types(call.receiver)


def _prepare_calls_without_any_model(module: Module) -> Iterator[Call]:
    """Calls of `prepare` that are given an optimizer, in a script whose calls of it are given no model."""
    methods = module.methods("prepare", "prepare_model")
    calls = [call for call in methods if _is_accelerator_method(module, call)]
    arguments = [argument for call in calls for argument in call.node.args]
    kinds = [module.flow.types(argument) for argument in arguments]
    if all(kinds) and not any("model" in kind for kind in kinds):
        yield from (call for call in calls if _is_given_optimizer(module, call))


def _is_given_optimizer(module: Module, call: Call) -> bool:
    """Is an optimizer among the arguments of a call, all of which are seen?"""
    return not call.open and any(
        "optimizer" in module.flow.types(argument) for argument in call.node.args
    )


def _models_wrapped_here_or_nearby(module: Module) -> Iterator[ast.expr]:
    """Models that a file wraps, or that a file it runs with wraps for its loop."""
    has_loop = any(True for _ in backward_calls(module))
    for part in module.self_and_files_run_together if has_loop else (module,):
        yield from models_given_to_wrappers(part)


def _wrapped_models(module: Module) -> Iterator[ast.AST]:
    """What the rule looks at: models that are wrapped for several processes."""
    yield from _models_wrapped_here_or_nearby(module)
    yield from (call.node for call in _prepare_calls_without_any_model(module))
    yield from (one.backward.node for one in unaveraged_passes(module))


class ForwardAroundTheWrapper(SourceRule):
    code = "SRC022"
    fault = Fault.VALUES_NOT_AVERAGED_OVER_PROCESSES
    severity = "error"
    looks_at = CodePlaces("models that are wrapped for several processes", _wrapped_models)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        yield from self._findings_on_no_sync()
        yield from self._findings_on_unprepared_model()
        yield from self._findings_on_unwrapped_model()
        wrapped = _models_wrapped_here_or_nearby(module)
        bare = [node for model in wrapped for node in constructions_of_model(module, model)]
        if not bare or any(
            GRADIENT_AVERAGING.search(part.text) for part in module.self_and_files_run_together
        ):
            return
        for backward, part in _backward_and_loss_calls(module):
            inside = model_called_without_its_wrapper(module, part, bare)
            if inside is not None and may_record_gradients(module, part):
                yield self._finding_on_forward(part, backward, *inside)

    def _findings_on_no_sync(self) -> Iterator[Finding]:
        """Findings on backward passes that all run under `no_sync`, which leaves the averaging to a
        pass outside of it.
        """
        module = self.subject
        passes = [
            call for part in module.self_and_files_run_together for call in part.methods("backward")
        ]
        around = [_no_sync_around(module.home(call.node), call.node) for call in passes]
        if passes and any(models_given_to_wrappers(module)) and all(around):
            yield self.finding(
                "every backward pass runs under no_sync: gradients are never averaged between the processes",
                "run the last micro-batch of each optimizer step outside of no_sync",
                cases=[case_of_node(module, node) for node in around[:1] if node is not None],
            )

    def _findings_on_unprepared_model(self) -> Iterator[Finding]:
        """Findings where Accelerate is given the optimizer, and never the model, whose gradients it
        would average.
        """
        module = self.subject
        for call in _prepare_calls_without_any_model(module):
            backward = next(
                (one for one in module.methods("backward") if _is_accelerator_method(module, one)),
                None,
            )
            if backward is not None:
                yield self.finding(
                    "accelerator.prepare gets the optimizer but not the model: gradients are not averaged between"
                    " the processes, and each trains its own model",
                    "pass it the model as well: model, optimizer, ... = accelerator.prepare(model, optimizer, ...)",
                    severity="error"
                    if next(commands_that_launch_several_processes(Path(module.path)), None)
                    else "warning",
                    cases=[case_of_node(module, call.node), case_of_node(module, backward.node)],
                )
                return

    def _findings_on_unwrapped_model(self) -> Iterator[Finding]:
        """Findings on processes that share out the rows, and step each on its own gradients:
        nothing wraps the model.
        """
        module = self.subject
        if any(GRADIENT_AVERAGING.search(part.text) for part in module.self_and_files_run_together):
            return
        unaveraged_pass = next(unaveraged_passes(module), None)
        if unaveraged_pass is not None:
            yield self.finding(
                "each process uses only the gradients of its own rows: the model is not wrapped in"
                " DistributedDataParallel, and"
                " nothing else averages them, so each process trains its own model",
                "wrap the model before the loop: model = DistributedDataParallel(model,"
                ' device_ids=[int(os.environ["LOCAL_RANK"])]), and save model.module',
                cases=[
                    case_of_node(module, unaveraged_pass.backward.node),
                    *(
                        [case_of_node(module, unaveraged_pass.step.node)]
                        if _is_in_file(module, unaveraged_pass.step)
                        else []
                    ),
                ],
            )

    def _finding_on_forward(
        self, forward: ast.Call, backward: ast.AST, model: ast.expr, wrapper: str
    ) -> Finding:
        """The finding on a forward pass; `model` is what it calls, or what its helper is given to call."""
        module = self.subject
        called = forward.func
        is_given = model is not called and model is not getattr(called, "value", None)
        places = [forward, model, backward] if is_given else [forward, backward]
        return self.finding(
            f"{module.text_of(model if is_given else called)} is called without its wrapper: gradients are not averaged"
            " between the processes",
            f"call {wrapper}(...) in training, not the module inside it",
            cases=[case_of_node(module, place) for place in places],
        )


def _is_in_file(module: Module, event: CallEvent) -> bool:
    """Does a call stand in this file?"""
    return event.home.path == module.path


def _backward_and_loss_calls(module: Module) -> Iterator[tuple[ast.Call, ast.Call]]:
    """(backward pass, call that its loss is computed by); each such call once, with the first backward pass."""
    seen: set[ast.AST] = set()
    for backward in backward_calls(module):
        for loss in possible_losses(backward):
            for part in backward_slice(module, loss):
                if isinstance(part, ast.Call) and part not in seen:
                    seen.add(part)
                    yield backward.node, part


def _no_sync_around(module: Module, node: ast.AST) -> ast.expr | None:
    """The `model.no_sync()` that is always entered around a place; None where there is none, or it is conditional."""
    for parent in module.parents(node):
        if isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef):
            return None
        if isinstance(parent, ast.If) and "no_sync" not in ast.unparse(parent.test):
            return None
        if isinstance(parent, ast.With):
            for item in parent.items:
                context = item.context_expr
                called = context.func if isinstance(context, ast.Call) else context
                if isinstance(called, ast.Attribute) and called.attr == "no_sync":
                    return context
    return None
