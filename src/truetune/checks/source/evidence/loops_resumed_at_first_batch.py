"""Finds training loops that take a checkpoint up in the middle of an epoch and begin it again.

How it works: a loop over a loader saves checkpoints on its way and raises a counter; when a run is
resumed, the script restores weights, optimizer and that counter. Then something must also bring the
loader forward. It is looked for by its name (`skip_first_batches`, `islice`, a state of the loader),
and by uses of what was restored: in what the loop iterates, in a condition that continues with the next
batch, in a seed.

The trade-off: any such sign silences it, whether it is right or not.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.source.evidence.backward_and_optimizer_step_calls import is_backward_call
from truetune.checks.source.evidence.nodes_that_an_expression_is_computed_from import backward_slice
from truetune.source.parsed_source_file import Module

STATE_LOADS = ("load_state", "load_state_dict", "load_checkpoint", "load")
"""Methods that restore a run: of accelerate, torch, DeepSpeed and Fabric"""
RESUMES = re.compile(r"resum|restor|checkpoint|ckpt|restart|continue_from", re.I)
"""Words of a condition under which a run is resumed"""
SAVES = re.compile(
    r"^save(?!_pretrained|_model|_metric|_log)|_save$|^(write|store)_?(checkpoint|ckpt|state)", re.I
)
"""Names of functions that write a checkpoint"""
BRINGS_DATA_FORWARD = re.compile(
    r"skip(?!_special|_prompt|ped|_bad|_nan)|islice|stateful|consumed|forward_to|fast_?forward"
    r"|(start|first|resume|from|initial)_?(batch|index|sample|row|micro)|(batch|data|row|sample)\w*_?(offset|position|cursor)"
    r"|(loader|sampler|data|stream)\w*_state|mosaic|streaming|webdataset",
    re.I,
)
"""Names of what begins a loader at another place than its first batch"""
LOADERS = re.compile(r"load|sampl|data", re.I)
"""Names of loaders, samplers and data sets"""
DRAWS_EACH_ROW_AT_RANDOM = re.compile(r"^(replacement|WeightedRandomSampler)$")
"""Names of samplers without an order, which a resumed run can neither begin again nor continue"""


class ResumedLoop(NamedTuple):
    """A loop that begins its loader again after a resume."""

    loop: ast.For
    restored: ast.Assign
    """What sets the counter of the loop to that of the checkpoint"""
    save: ast.Call
    """A checkpoint that is written between two batches"""


def loops_resumed_at_first_batch(module: Module) -> Iterator[ResumedLoop]:
    """The training loops of a file that are resumed and begin at their first batch."""
    if not _restores_optimizer(module) or _is_loader_resumed_or_drawn_at_random(module):
        return
    for loop in training_loops_with_saves(module):
        save = _save_between_batches(module, loop)
        restored = next(_restored_counters(module, loop), None)
        if save is None or restored is None:
            continue
        names = _names_set_by_resume(module, restored)
        if not _do_batches_depend_on_restored_names(module, loop, names):
            yield ResumedLoop(loop, restored, save)


def training_loops_with_saves(module: Module) -> Iterator[ast.For]:
    """The loops over a loader that make backward passes and write checkpoints on their way."""
    for loop in module.nodes(ast.For):
        is_over_loader = any(
            "loader" in module.flow.types(part)
            for part in ast.walk(loop.iter)
            if isinstance(part, ast.expr)
        )
        if is_over_loader and any(map(is_backward_call, ast.walk(loop))):
            if _save_between_batches(module, loop) is not None:
                yield loop


def _restores_optimizer(module: Module) -> bool:
    """Does the file restore more than weights: the state of a run, or of its optimizer?"""
    for call in module.methods(*STATE_LOADS):
        if call.method != "load_state_dict" and call.method != "load":
            return True
        if call.receiver is not None and _is_optimizer_or_fabric(module, call.receiver):
            return True
    return False


def _is_optimizer_or_fabric(module: Module, owner: ast.expr) -> bool:
    """Is an object an optimizer, or what holds one?"""
    is_optimizer = "optimizer" in module.flow.types(owner)
    return is_optimizer or bool(re.search(r"opt|fabric", ast.unparse(owner), re.I))


def _is_loader_resumed_or_drawn_at_random(module: Module) -> bool:
    """Do the files name what begins a loader elsewhere or draws its rows at random, or restore a loader's state?"""
    for part in module.self_and_files_run_together:
        for node in part.nodes(ast.Name, ast.Attribute, ast.keyword, ast.arg, ast.alias):
            name = getattr(node, "id", None) or getattr(node, "attr", None)
            name = name or getattr(node, "arg", None) or getattr(node, "name", None)
            if name and (BRINGS_DATA_FORWARD.search(name) or DRAWS_EACH_ROW_AT_RANDOM.match(name)):
                return True
        for call in part.methods("load_state_dict"):
            if call.receiver is not None and LOADERS.search(ast.unparse(call.receiver)):
                return True
    return False


def _save_between_batches(module: Module, loop: ast.For) -> ast.Call | None:
    """A call in a loop that writes a checkpoint; one at its last batch alone, or of weights alone, is none."""
    for call in ast.walk(loop):
        if not isinstance(call, ast.Call):
            continue
        name = ast.unparse(call.func).rpartition(".")[2]
        tests = [up.test for up in module.parents(call) if isinstance(up, ast.If)]
        is_at_end = any("len(" in ast.unparse(test) for test in tests)
        if SAVES.search(name) and not is_at_end and not _saves_weights_alone(module, call):
            return call
    return None


def _saves_weights_alone(module: Module, call: ast.Call) -> bool:
    """Is the state of a model all that a call saves: `torch.save(model.state_dict(), "best.pt")`?

    A run is not resumed from it.
    """
    if not call.args:
        return False
    saved = call.args[0]
    origins = module.flow.origins(saved) if isinstance(saved, ast.Name) else ()
    states = [origin.node for origin in origins] or [saved]
    return all(
        isinstance(state, ast.Call)
        and isinstance(state.func, ast.Attribute)
        and state.func.attr == "state_dict"
        and not _is_optimizer_or_fabric(module, state.func.value)
        for state in states
    )


def _restored_counters(module: Module, loop: ast.For) -> Iterator[ast.Assign]:
    """The assignments that set a counter of a loop to that of a checkpoint."""
    counters = {
        ast.unparse(part.target) for part in ast.walk(loop) if isinstance(part, ast.AugAssign)
    }
    for node in module.nodes(ast.Assign):
        targets = [name for one in node.targets for name in _texts_of_target_parts(one)]
        parts = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
        if not counters & set(targets) or all(isinstance(one, ast.Constant) for one in parts):
            continue
        if loop not in module.parents(node) and is_set_by_resume(module, node):
            yield node


def is_set_by_resume(module: Module, node: ast.Assign) -> bool:
    """Is a name set where a run is resumed: under such a condition, in such a function, or from a
    file that is loaded?
    """
    for up in module.parents(node):
        if isinstance(up, ast.If) and RESUMES.search(ast.unparse(up.test)):
            return True
        if isinstance(up, ast.FunctionDef) and RESUMES.search(up.name):
            return True
    calls = (part for part in backward_slice(module, node.value) if isinstance(part, ast.Call))
    return any(module.flow.call(call).named("torch.load") for call in calls)


def _texts_of_target_parts(target: ast.expr) -> list[str]:
    """What an assignment sets, as text; the parts of a tuple."""
    parts = target.elts if isinstance(target, ast.Tuple) else [target]
    return [ast.unparse(part) for part in parts]


def _names_set_by_resume(module: Module, restored: ast.Assign) -> set[str]:
    """The names that are set where a run is resumed, and those that are made of them."""
    around = next(
        (up for up in module.parents(restored) if isinstance(up, ast.If | ast.FunctionDef)),
        restored,
    )
    names: set[str] = set()
    for statement in ast.walk(around):
        if isinstance(statement, ast.Assign):
            names |= _target_texts_of_assignment(statement)
    names.discard("self")
    for statement in module.nodes(ast.Assign):
        if _texts_of_expressions(statement.value) & names:
            names |= _target_texts_of_assignment(statement)
    return names


def _target_texts_of_assignment(statement: ast.Assign) -> set[str]:
    """What an assignment sets with all of its targets, as text."""
    return {name for target in statement.targets for name in _texts_of_target_parts(target)}


def _texts_of_expressions(value: ast.expr) -> set[str]:
    """An expression and those inside it, as text."""
    return {ast.unparse(part) for part in ast.walk(value) if isinstance(part, ast.expr)}


def _do_batches_depend_on_restored_names(module: Module, loop: ast.For, names: set[str]) -> bool:
    """Do the batches of a loop depend on what was restored: by what it iterates, by batches that it
    passes over, or by a seed?
    """
    iterated = {ast.unparse(part) for part in backward_slice(module, loop.iter) if _is_name(part)}
    return (
        bool(iterated & names)
        or _condition_on_names_skips_batches(module, loop, names)
        or _is_given_to_loader_or_seed(module, names)
        or _draws_batches_before(module, loop, names)
    )


def _condition_on_names_skips_batches(module: Module, loop: ast.For, names: set[str]) -> bool:
    """Does a condition on one of these names continue with the next batch, or end another loop?"""
    for node in module.nodes(ast.Continue, ast.Break):
        # The end of the training itself depends on its counter in any case.
        if isinstance(node, ast.Break) and loop in module.parents(node):
            continue
        test = next((up.test for up in module.parents(node) if isinstance(up, ast.If)), None)
        if test is not None and _mentions(test, names):
            return True
    return False


def _is_given_to_loader_or_seed(module: Module, names: set[str]) -> bool:
    """Is one of these names given to what makes or seeds the batches?"""
    for call in module.nodes(ast.Call):
        name = ast.unparse(call.func)
        is_of_data = LOADERS.search(name) or "seed" in name or name in ("next", "iter")
        is_of_resume = RESUMES.search(name) or name.rpartition(".")[2] in STATE_LOADS
        if is_of_data and not is_of_resume and any(_mentions(one, names) for one in call.args):
            return True
    return False


def _draws_batches_before(module: Module, loop: ast.For, names: set[str]) -> bool:
    """Does a loop before the training draw as many batches: `for _ in range(step): next(batches)`?"""
    return any(
        _mentions(other.iter, names) and "next(" in ast.unparse(other)
        for other in module.nodes(ast.For)
        if other is not loop and loop not in ast.walk(other)
    )


def _is_name(node: ast.AST) -> bool:
    """Is it a name, or an attribute of one?"""
    return isinstance(node, ast.Name | ast.Attribute)


def _mentions(node: ast.AST, names: set[str]) -> bool:
    """Does an expression hold one of these names?"""
    return any(ast.unparse(part) in names for part in ast.walk(node) if _is_name(part))
