"""A forward pass that needs no gradients builds an autograd graph: an evaluation, or a teacher, without `no_grad`.

## What it does
Looks at model calls in loops. It fires for an evaluation (a loop without a backward pass, in a function that puts the
model into `eval()` mode; also in a Trainer callback) and for a second model next to the one that the optimizer trains.
The call must not be under `torch.no_grad()` or `torch.inference_mode()`, directly or through all callers of its
function, and nothing freezes the model.

## Why it is bad
`eval()` only turns dropout off. Each forward pass keeps the activations of all layers for a backward pass that never
comes: an evaluation needs as much memory as a training step, and runs out of it with a larger batch. A teacher's
gradients are computed and stored as well, and take as many bytes as its weights.

## Example
```python
import torch
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("model")

def validate(loader):
    model.eval()
    losses = []
    for batch in loader:
        losses.append(model(**batch).loss.item())
    model.train()
    return sum(losses) / len(losses)

for batch in loader:
    model(**batch).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print(validate(held_out))
```

## Use instead
```python
import torch
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("model")

@torch.no_grad()
def validate(loader):
    model.eval()
    losses = []
    for batch in loader:
        losses.append(model(**batch).loss.item())
    model.train()
    return sum(losses) / len(losses)

for batch in loader:
    model(**batch).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print(validate(held_out))
```

## Fix safety
Safe if nothing calls `backward` on the result.

## References
- https://docs.pytorch.org/docs/stable/notes/autograd.html#evaluation-mode-nn-module-eval
- huggingface/transformers#2595
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.multi_process_loops import FUNCTIONS, LOOPS
from truetune.checks.source.evidence.which_place_surely_runs_first import (
    Route,
    RouteStep,
    call_routes_to,
)
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

NO_GRAPH = re.compile(r"no_grad|inference_mode|set_grad_enabled")
WANTS_GRADIENTS = re.compile(
    r"backward|autograd\.grad|requires_grad_\(True|requires_grad = True|\.grad\b|training_step"
)
TRACE_OF_TRAINING = re.compile(
    r"backward|autograd|grad_enabled|requires_grad|\.grad\b|optim\b|training_step"
)
FREEZING_CODE = re.compile(r"requires_grad_\(False|requires_grad = False|requires_grad=False")
MOVING_METHODS = frozenset(("cuda", "to", "eval", "half", "bfloat16", "float", "train"))
"""Methods that give the model itself back"""
OPTIMIZERS = ("torch.optim.*", "bitsandbytes.optim.*")


def _forward_calls_in_loops(module: Module) -> Iterator[ast.Call]:
    """Calls of models in loops of their own function, or of one that calls it."""
    if not module.mentions("from_pretrained"):
        return
    for node in module.nodes(ast.Call):
        if not isinstance(node.func, ast.Name | ast.Attribute):
            continue
        if "model" in module.flow.types(node.func) and not _is_move_of_model(node):
            if (
                _loops_around(module, node)
                or _looped_route_recording_unwanted_gradients(module, node) is not None
            ):
                yield node
        elif _is_model_of_callback(module, node) and _loops_around(module, node):
            yield node


def _is_move_of_model(node: ast.Call) -> bool:
    """Does the call only move a model: `model.to(device)`, which gives a model as well?"""
    return isinstance(node.func, ast.Attribute) and node.func.attr in MOVING_METHODS


def _looped_route_recording_unwanted_gradients(module: Module, node: ast.Call) -> Route | None:
    """A way from the running script to a pass, through a loop, where gradients are recorded and none is wanted."""
    trains_nothing = _trains_nothing(module)
    for route in call_routes_to(module, node):
        # Who runs a function that nothing calls is not known.
        starts = isinstance(route[-1].scope, ast.Module)
        is_looped = any(_loops_around(module, stop.node) for stop in route)
        if (
            not starts
            or not is_looped
            or any(_is_gradient_recording_off_in_function(module, stop.node) for stop in route)
        ):
            continue
        if trains_nothing or any(_is_evaluating_function(module, stop) for stop in route):
            return route
    return None


def _trains_nothing(module: Module) -> bool:
    """Do the files that run together use torch, and show no training and no gradients?"""
    if not module.mentions("import torch", "from torch") or module.mentions("TFAuto", "Flax"):
        return False
    if any(TRACE_OF_TRAINING.search(part.text) for part in module.self_and_files_run_together):
        return False
    return not any(
        "trainer" in module.flow.types(call.node)
        for part in module.self_and_files_run_together
        for call in part.calls("transformers.*Trainer", "trl.*Trainer")
    )


def _is_evaluating_function(module: Module, stop: RouteStep) -> bool:
    """Is it a function that puts a model into eval mode above a place, and wants no gradient?"""
    if not isinstance(stop.scope, FUNCTIONS):
        return False
    if WANTS_GRADIENTS.search(module.text_of(stop.scope)):
        return False
    return any(
        isinstance(part, ast.Call)
        and isinstance(part.func, ast.Attribute)
        and part.func.attr == "eval"
        and not part.args
        and "model" in module.flow.types(part.func.value)
        and part.lineno < getattr(stop.node, "lineno", 0)
        for part in ast.walk(stop.scope)
    )


def _is_gradient_recording_off_in_function(module: Module, node: ast.AST) -> bool:
    """Is gradient recording off at a place, by a `with` or a decorator of its function?"""
    for around in module.parents(node):
        if isinstance(around, ast.With | ast.AsyncWith):
            if any(NO_GRAPH.search(ast.unparse(item)) for item in around.items):
                return True
        if isinstance(around, (*FUNCTIONS, ast.Lambda)):
            decorators = getattr(around, "decorator_list", ())
            return any(NO_GRAPH.search(ast.unparse(one)) for one in decorators)
    return False


class EvaluationBuildsGraphs(SourceRule):
    code = "SRC091"
    fault = Fault.EVALUATION_FILLS_GPU_MEMORY
    severity = "warning"
    looks_at = CodePlaces("calls of models in loops", _forward_calls_in_loops)

    def findings(self) -> Iterator[Finding]:
        """Findings on forward passes of an evaluation or a teacher that build a graph for gradients
        which nobody wants.
        """
        module = self.subject
        if any(
            NO_GRAPH.search(part.text) and "set_grad_enabled(False)" in part.text
            for part in module.self_and_files_run_together
        ):
            return
        seen: set[str] = set()
        for node in _forward_calls_in_loops(module):
            name = module.text_of(node.func)
            if name in seen:
                continue
            route = _looped_route_recording_unwanted_gradients(module, node)
            if route is not None and not FREEZING_CODE.search(module.text):
                seen.add(name)
                yield self._finding_on_evaluation_pass_by_route(name, route)
            elif _is_gradient_recording_off(module, node) or not _loops_around(module, node):
                continue
            elif _is_evaluation_pass(module, node):
                seen.add(name)
                yield self.finding(
                    f"the evaluation calls {name} without no_grad: each pass keeps the activations of all layers in"
                    " memory",
                    "put @torch.no_grad() above the function, or `with torch.no_grad():` around the loop; eval()"
                    " does not"
                    " do that",
                    cases=[case_of_node(module, node)],
                )
            elif _is_untrained_second_model(module, node):
                seen.add(name)
                yield self.finding(
                    f"{name} is not trained, but its forward pass builds an autograd graph: its activations stay in"
                    " memory until"
                    " the backward pass, which computes gradients for all its weights",
                    f"call it under `with torch.no_grad():`, and call {name}.requires_grad_(False) once before the"
                    " loop",
                    cases=[case_of_node(module, node)],
                )

    def _finding_on_evaluation_pass_by_route(self, name: str, route: Route) -> Finding:
        """The finding on a pass that a loop of an evaluation reaches, in its function or through
        others.
        """
        module = self.subject
        loops = (stop.node for stop in route if _loops_around(module, stop.node))
        looped = next(loops, route[0].node)
        cases = [case_of_node(module, node) for node in dict.fromkeys((route[0].node, looped))]
        return self.finding(
            f"the evaluation calls {name} without no_grad: each pass keeps the activations of all layers in memory",
            "put @torch.no_grad() above the function, or `with torch.no_grad():` around the loop; eval() does not"
            " do that",
            cases=cases,
        )


def _is_model_of_callback(module: Module, node: ast.Call) -> bool:
    """Is the called model the one that the Trainer gives a method of a callback?"""
    if not isinstance(node.func, ast.Name) or node.func.id != "model":
        return False
    function = next((one for one in module.parents(node) if isinstance(one, FUNCTIONS)), None)
    if not isinstance(function, ast.FunctionDef) or not function.name.startswith("on_"):
        return False
    parameters = [*function.args.args, *function.args.kwonlyargs]
    if not any(parameter.arg == "model" for parameter in parameters):
        return False
    owner = module.scopes.parent.get(function)
    return isinstance(owner, ast.ClassDef) and any(
        (module.flow.name(base) or "").endswith("TrainerCallback") for base in owner.bases
    )


def _loops_around(module: Module, node: ast.AST) -> list[ast.AST]:
    """The loops around a place in its function, the innermost first."""
    nodes: list[ast.AST] = []
    for around in module.parents(node):
        if isinstance(around, (*FUNCTIONS, ast.Lambda)):
            break
        if isinstance(around, LOOPS):
            nodes.append(around)
    return nodes


def _is_gradient_recording_off(module: Module, node: ast.AST, depth: int = 4) -> bool:
    """Is gradient recording off at a place: by a `with`, a decorator, or at each call of its function?"""
    for around in module.parents(node):
        if isinstance(around, ast.With | ast.AsyncWith):
            if any(NO_GRAPH.search(ast.unparse(item)) for item in around.items):
                return True
        if isinstance(around, FUNCTIONS):
            if any(NO_GRAPH.search(ast.unparse(one)) for one in around.decorator_list):
                return True
            callers = module.flow.calls_of_function_or_class(around)
            return (
                depth > 0
                and bool(callers)
                and all(_is_gradient_recording_off(module, caller, depth - 1) for caller in callers)
            )
    return False


def _function_or_outermost_loop(module: Module, node: ast.AST) -> ast.AST:
    """The function around a place, else the outermost loop."""
    function = next((one for one in module.parents(node) if isinstance(one, FUNCTIONS)), None)
    return function or _loops_around(module, node)[-1]


def _is_evaluation_pass(module: Module, node: ast.Call) -> bool:
    """Is the call a pass of an evaluation: after eval() in its function, where no gradient is
    wanted?
    """
    scope = _function_or_outermost_loop(module, node)
    inner = _loops_around(module, node)[0]
    # Without a weight that requires gradients, torch records no graph either.
    if WANTS_GRADIENTS.search(module.text_of(inner)) or FREEZING_CODE.search(module.text):
        return False
    if isinstance(scope, FUNCTIONS) and WANTS_GRADIENTS.search(module.text_of(scope)):
        return False
    trains = any(module.methods("backward")) or _is_model_of_callback(module, node)
    return trains and _is_in_eval_mode(module, node, scope)


def _is_in_eval_mode(module: Module, node: ast.Call, scope: ast.AST) -> bool:
    """Is the model that is called put into eval mode above the call, in its function or loop?"""
    model = ast.unparse(node.func)
    for call in module.methods("eval"):
        # `pandas.eval("...")` has arguments.
        if call.receiver is None or call.args or ast.unparse(call.receiver) != model:
            continue
        if _is_node_in_scope(scope, call.node) and call.node.lineno < node.lineno:
            return True
    return False


def _is_node_in_scope(scope: ast.AST, node: ast.AST) -> bool:
    """Does a place stand in this function or loop?"""
    return any(part is node for part in ast.walk(scope))


def _is_untrained_second_model(module: Module, node: ast.Call) -> bool:
    """Is the called model one that no optimizer of the file has, in a loop that trains another one?"""
    loops = _loops_around(module, node)
    if not any("backward" in module.text_of(loop) for loop in loops) or FREEZING_CODE.search(
        module.text
    ):
        return False
    if any(
        isinstance(around, ast.Call)
        and isinstance(around.func, ast.Attribute)
        and around.func.attr == "detach"
        for around in module.parents(node)
    ):
        return False
    own = {origin.node for origin in module.flow.origins(node.func)}
    loaded = _making_call_without_moves(module, node.func)
    if loaded is None or not loaded.named("transformers.*.from_pretrained"):
        return False
    trained = _trained_model_sources(module)
    return bool(trained) and not own & trained


def _making_call_without_moves(module: Module, model: ast.expr) -> Call | None:
    """The call that made a model, without those that move it: `from_pretrained(...).eval().cuda()`."""
    made = module.flow.producing_call(model)
    while (
        made is not None and made.method in MOVING_METHODS and isinstance(made.receiver, ast.Call)
    ):
        made = module.flow.call(made.receiver)
    return made


def _trained_model_sources(module: Module) -> set[ast.AST]:
    """Where the models come from whose parameters an optimizer has; empty where one of them is not seen."""
    sources: set[ast.AST] = set()
    for optimizer in module.calls(*OPTIMIZERS):
        reads = _parameter_reads(optimizer)
        if not reads:
            return set()
        for read in reads:
            origins = {origin.node for origin in module.flow.origins(read.value)}
            if not any(isinstance(node, ast.Call) for node in origins):
                return set()
            sources |= origins
            # `get_peft_model(base, config)` trains its base as well.
            wrapper = module.flow.producing_call(read.value)
            if wrapper is not None and wrapper.args:
                sources |= {origin.node for origin in module.flow.origins(wrapper.args[0])}
    return sources


def _parameter_reads(optimizer: Call) -> list[ast.Attribute]:
    """`model.parameters` and the like in what an optimizer is given."""
    params_argument = optimizer.argument(0, "params")
    if params_argument is None:
        return []
    return [
        part
        for part in ast.walk(params_argument)
        if isinstance(part, ast.Attribute) and part.attr in ("parameters", "named_parameters")
    ]
