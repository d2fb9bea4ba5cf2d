"""Finds weights that are kept under a second name, not copied, and changed by later training steps.

How it works: `state_dict()` and the parameters of a model give its own tensors. Where such a value is kept (the best
state, the state to begin each fold with, an average of the weights), a later step of the optimizer changes it, and
something reads it after that, what is read are the newest weights. Three places are compared: where the value is kept,
where a step is made, where it is read.

The trade-off: a model that is made again in the loop, and wrappers whose state is gathered into new tensors, are
left alone; so is a value that is read only where it was kept.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.source.evidence.may_place_run_before_another import (
    call_chains,
    may_run_before,
)
from truetune.source.call_with_resolved_names_and_arguments import Call, last_name_of_called
from truetune.source.parsed_source_file import Module
from truetune.source.shorten_qualified_names import spelling_of_variable

LOOPS = (ast.For, ast.AsyncFor, ast.While)
Binding = ast.Assign | ast.AnnAssign
NOT_A_MODEL = re.compile(r"opt|sched|scaler|sampler|loader|dataset|tokenizer|accelerator", re.I)
"""Names of other objects that have a `state_dict()`"""
KEPT_NAME = re.compile(
    r"(^|_)(best|ema|shadow|avg|averaged?|init|initial|old|prev|previous|backup|snapshot|saved|start|anchor|orig"
    r"|original|before)(_|$)",
    re.I,
)
"""Names of what is to stay as it is while the model trains"""
SHALLOW_COPIES = frozenset(("copy", "dict", "OrderedDict"))
"""Calls and methods that make a new dictionary of the same tensors"""
GIVING_PARAMETERS = frozenset(("parameters", "named_parameters", "state_dict"))
SAME_TENSOR = frozenset(("data", "detach"))
"""What gives the memory of a tensor again"""
GATHERING = re.compile(
    r"FSDP|FullyShardedDataParallel|StateDictType|deepspeed|fully_shard|GatheredParameters"
)
"""In files: what makes new tensors of a state"""
TRAINING_NAME = re.compile(r"(^|_)(train|fit|finetune|fine_tune)(_|$|\w*epoch|\w*step)", re.I)


class KeptWeights(NamedTuple):
    """Weights that are kept, and follow the training."""

    kept: Binding
    variable: str
    how: str
    """What gives the model's own tensors: `state_dict()`, `the parameters`, `the model`"""
    step: ast.AST
    """A step that changes them"""
    read: ast.expr
    """Where they are read as they were"""


def weights_kept_without_copy(module: Module) -> Iterator[KeptWeights]:
    """The weights that a file keeps without a copy, each place once.

    Args:
        module: A file that is judged.

    Yields:
        Each place that keeps weights which a later step changes before they are read.
    """
    if GATHERING.search(module.text):
        return
    for kept, how in bindings_of_live_weights(module):
        target = _target_of(kept)
        variable = spelling_of_variable(target) if target is not None else None
        if target is None or variable is None or _is_copied_later(module, variable):
            continue
        found = _step_and_later_read(module, kept, target)
        if found is not None:
            yield KeptWeights(kept, variable, how, *found)


def bindings_of_live_weights(module: Module) -> Iterator[tuple[Binding, str]]:
    """The assignments of a model's own tensors to a name, each with what gives them."""
    for node in module.nodes(ast.stmt):
        if not isinstance(node, ast.Assign | ast.AnnAssign):
            continue
        target, value = _target_of(node), node.value
        if target is None or value is None:
            continue
        name = (spelling_of_variable(target) or "").rpartition(".")[2]
        how = _what_gives_live_weights(module, value, name)
        if how == "the model" and not _keeps_the_best_in_a_loop(module, node, name):
            continue
        if how is not None:
            yield node, how


def _target_of(node: Binding) -> ast.expr | None:
    """What an assignment sets, where it is one name or attribute."""
    if isinstance(node, ast.AnnAssign):
        return node.target
    return node.targets[0] if len(node.targets) == 1 else None


def _what_gives_live_weights(module: Module, value: ast.expr, name: str) -> str | None:
    """What gives the tensors of a model that a value holds; None where it holds copies, or none."""
    if _is_state_of_model(value):
        return "state_dict()"
    if isinstance(value, ast.DictComp | ast.ListComp) and KEPT_NAME.search(name):
        return "the parameters" if _holds_parameters(value) else None
    is_other_name = isinstance(value, ast.Name) and value.id != name
    if is_other_name and "model" in module.flow.types(value):
        return "the model"
    return None


def _is_state_of_model(value: ast.expr) -> bool:
    """Is it `model.state_dict()`, or a dictionary of the same tensors?"""
    if not isinstance(value, ast.Call):
        return False
    name = last_name_of_called(value)
    if name in SHALLOW_COPIES:
        inner = [*value.args[:1]]
        if not inner and isinstance(value.func, ast.Attribute):
            inner = [value.func.value]
        return any(_is_state_of_model(one) for one in inner)
    if name == "get_peft_model_state_dict":
        return True
    owner = value.func.value if isinstance(value.func, ast.Attribute) else None
    return name == "state_dict" and owner is not None and not NOT_A_MODEL.search(ast.unparse(owner))


def _holds_parameters(value: ast.DictComp | ast.ListComp) -> bool:
    """Does a comprehension over the parameters of a model keep them as they are?"""
    generator = value.generators[0]
    if not _gives_parameters(generator.iter):
        return False
    kept = _tensor_whose_memory_is_kept(
        value.value if isinstance(value, ast.DictComp) else value.elt
    )
    names = {part.id for part in ast.walk(generator.target) if isinstance(part, ast.Name)}
    return isinstance(kept, ast.Name) and kept.id in names


def _gives_parameters(iterated: ast.expr) -> bool:
    """Is this a call that gives the parameters of a model, or the `items()` of such a call?"""
    source = iterated
    if isinstance(source, ast.Call) and last_name_of_called(source) == "items":
        source = source.func.value if isinstance(source.func, ast.Attribute) else source
    return isinstance(source, ast.Call) and last_name_of_called(source) in GIVING_PARAMETERS


def _tensor_whose_memory_is_kept(value: ast.expr) -> ast.expr | None:
    """The tensor before `.data` and `.detach()`; None where anything else is called on it."""
    kept = value
    while isinstance(kept, ast.Attribute | ast.Call):
        inner = kept.func if isinstance(kept, ast.Call) else kept
        if not isinstance(inner, ast.Attribute) or inner.attr not in SAME_TENSOR:
            return None
        kept = inner.value
    return kept


def _keeps_the_best_in_a_loop(module: Module, node: Binding, name: str) -> bool:
    """Is a model kept as the best one, under a condition in a loop?"""
    around = [*module.parents(node)]
    tests = [one for one in around if isinstance(one, ast.If)]
    return (
        bool(KEPT_NAME.search(name))
        and any(isinstance(one, LOOPS) for one in around)
        and any(isinstance(part, ast.Compare) for one in tests for part in ast.walk(one.test))
    )


def _is_copied_later(module: Module, variable: str) -> bool:
    """Does another assignment to the name copy what it holds?"""
    for node in module.nodes(ast.Assign):
        if variable in (spelling_of_variable(one) for one in node.targets):
            text = ast.unparse(node.value)
            if re.search(r"clone|deepcopy|\.cpu\(|\.numpy\(", text):
                return True
    return False


def _step_and_later_read(
    module: Module, kept: Binding, target: ast.expr
) -> tuple[ast.AST, ast.expr] | None:
    """A step that runs after the weights are kept, and a place that reads them after the step."""
    reads = [read for read in _reads_of(module, target) if _uses_weights(module, read)]
    if not reads:
        return None
    steps = [step for step in _training_steps(module, kept) if may_run_before(module, kept, step)]
    for step in steps:
        if _is_model_made_again(module, kept, step):
            continue
        for read in reads:
            if may_run_before(module, step, read) and not _reads_what_was_just_kept(
                module, kept, step, read
            ):
                return step, read
    return None


def _reads_of(module: Module, target: ast.expr) -> Iterator[ast.expr]:
    """The places that read a variable."""
    variable = spelling_of_variable(target)
    for read in module.variable_reads():
        if spelling_of_variable(read) != variable:
            continue
        if isinstance(target, ast.Name) and isinstance(read, ast.Name):
            if module.scopes.scope_that_binds_name(read) is not module.scopes.scope_that_binds_name(
                target
            ):
                continue
        yield read


def _uses_weights(module: Module, read: ast.expr) -> bool:
    """Does a place use the weights: gives them to a call, returns them, calls a method of them, takes one?"""
    around = module.scopes.parent.get(read)
    if isinstance(around, ast.keyword):
        around = module.scopes.parent.get(around)
    if isinstance(around, ast.Call):
        return last_name_of_called(around) not in ("len", "print", "isinstance", "id", "type")
    return isinstance(around, ast.Return | ast.Attribute | ast.Subscript | ast.Dict | ast.For)


def _training_steps(module: Module, kept: Binding) -> Iterator[ast.AST]:
    """The places that change the weights: steps of optimizers, trainers, and functions that train."""
    source = _root_name(kept.value)
    for call in module.all_calls:
        name = last_name_of_called(call.node)
        if name == "step" and call.receiver is not None:
            owner = ast.unparse(call.receiver)
            is_optimizer = "optimizer" in module.flow.types(call.receiver)
            if is_optimizer or re.search(r"opt(im|imizer)?\w*$|engine$|scaler$", owner, re.I):
                yield call.node
        elif TRAINING_NAME.search(name) and module.flow.function_called(call.node.func) is None:
            arguments = (*call.args, *call.keywords.values())
            is_given = any(isinstance(one, ast.Name) and one.id == source for one in arguments)
            if is_given or _is_trainer_training_call(module, call):
                yield call.node


def _is_trainer_training_call(module: Module, call: Call) -> bool:
    """Is it `trainer.train()` or `trainer.fit(...)`?"""
    if call.receiver is None or call.method not in ("train", "fit"):
        return False
    made = (origin.node for origin in module.flow.origins(call.receiver))
    return any(
        isinstance(one, ast.Call) and last_name_of_called(one).endswith("Trainer") for one in made
    )


def _root_name(value: ast.expr | None) -> str | None:
    """The name of the model that a value is taken from."""
    source = value.generators[0].iter if isinstance(value, ast.DictComp | ast.ListComp) else value
    names = [part.id for part in ast.walk(source) if isinstance(part, ast.Name)] if source else []
    plain = [name for name in names if name not in ("copy", "dict", "OrderedDict")]
    return plain[0] if plain else None


def _is_model_made_again(module: Module, kept: Binding, step: ast.AST) -> bool:
    """Is the model made again in the innermost loop around both, so that the steps change another one?"""
    loops = {one for one in module.parents(step) if isinstance(one, LOOPS)}
    shared = next((one for one in module.parents(kept) if one in loops), None)
    source = _root_name(kept.value)
    if shared is None or source is None:
        return False
    return any(
        isinstance(part, ast.Name) and part.id == source and isinstance(part.ctx, ast.Store)
        for part in ast.walk(shared)
    )


def _reads_what_was_just_kept(module: Module, kept: Binding, step: ast.AST, read: ast.expr) -> bool:
    """Is the value kept again before each read, with no step between the two?"""
    function = module.function_around(kept)
    if function is not module.function_around(read):
        return _is_read_by_call_beside(module, kept, read)
    suite = next(module.parents(kept), None)
    if suite not in set(module.parents(read)) or read.lineno < kept.lineno:
        return False
    links = [link for chain in call_chains(module, step) for link in chain]
    here = [link for link in links if module.function_around(link) is function]
    return not any(_may_step_run_between(module, kept, link, read) for link in here)


def _may_step_run_between(module: Module, kept: Binding, step: ast.AST, read: ast.expr) -> bool:
    """May a step run between the place that keeps the value and a later one that reads it?"""
    if kept.lineno < getattr(step, "lineno", 0) < read.lineno:
        return next(module.parents(kept), None) in set(module.parents(step))
    around_kept = set(module.parents(kept))
    loops = {one for one in module.parents(read) if isinstance(one, LOOPS)} - around_kept
    return any(one in loops for one in module.parents(step))


def _is_read_by_call_beside(module: Module, kept: Binding, read: ast.expr) -> bool:
    """Does a function that reads the value run right where it is kept?"""
    suite = next(module.parents(kept), None)
    function = module.function_around(read)
    calls = module.flow.calls_of_function_or_class(function) if function is not None else []
    return any(suite in set(module.parents(call)) for call in calls)
