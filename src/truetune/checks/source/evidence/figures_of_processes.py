"""Figures of evaluations that several processes make, each of its part of the rows.

How it works: loops without gradients over a loader that deals rows out are evaluations in parts; the figure is put
together where any call of the files sums or gathers over processes. Lightning's figures are read from the steps of a
LightningModule, with the Trainer and the callbacks of the same files.

The trade-off: one call that gathers anything excuses all evaluations of the files.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.source.evidence.loop_exits_by_rank import prepares_loader
from truetune.checks.source.evidence.one_process_conditions import is_one_process_test
from truetune.source.module import Module
from truetune.source.resolved_calls import Call

LOADERS = ("torch.utils.data.DataLoader", "torch.utils.data.dataloader.DataLoader")
SAMPLERS = ("torch.*.DistributedSampler",)
PUTS_TOGETHER = re.compile(
    r"all_?reduce|all_?gather|\bgather|gather_|\.reduce\(|reduce_(?!on_)|dist\.reduce|torchmetrics|evaluate\.load"
    r"|distributed_concat|nested_gather|Trainer\(",
)
"""Signs that a figure is summed or gathered over processes, or that a trainer does so"""
WITHOUT_GRADIENTS = re.compile(r"no_grad|inference_mode|\.eval\(\)")
LOGS = re.compile(r"\bprint\(|\.log\(|\.info\(|add_scalar\(|log_metrics?\(")
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
TRAINERS = ("lightning.*Trainer", "pytorch_lightning.*Trainer")
CHOOSERS = ("ModelCheckpoint", "EarlyStopping")
VALIDATION_STEPS = frozenset(
    ("validation_step", "test_step", "on_validation_epoch_end", "validation_epoch_end")
)
SEVERAL_STRATEGY = re.compile(r"ddp|fsdp|deepspeed", re.I)


class PartialEvaluation(NamedTuple):
    """A loop over rows of this process alone, without gradients."""

    loop: ast.For
    dealt: ast.AST
    """What deals the rows out"""
    logged: ast.AST | None
    """Where rank 0 logs a figure; None where figures are put together, or nothing is logged"""


class LoggedFigure(NamedTuple):
    """A figure that a LightningModule logs without reducing it."""

    call: Call
    name: str
    several: str
    """What says that there are several processes"""
    chooser: ast.AST | None
    """The callback that goes by it"""


def partial_evaluations(module: Module) -> Iterator[PartialEvaluation]:
    """The loops of a file that evaluate a part of the rows."""
    loops = [loop for loop in module.nodes(ast.For) if _evaluates(module, loop)]
    dealt = [(loop, _what_deals(module, loop.iter)) for loop in loops]
    logged = None
    if not any(PUTS_TOGETHER.search(one.text) for one in module.with_linked):
        logged = _log_of_one_rank(module)
    for loop, deals in dealt:
        if deals is not None:
            yield PartialEvaluation(loop, deals, logged)


def _evaluates(module: Module, loop: ast.For) -> bool:
    """Does a loop add up a figure of a model, without gradients?"""
    adds = any(isinstance(part, ast.AugAssign) for part in ast.walk(loop)) or any(
        isinstance(part, ast.Attribute) and part.attr in ("append", "extend")
        for part in ast.walk(loop)
    )
    if not adds or any(
        isinstance(part, ast.Attribute) and part.attr == "backward" for part in ast.walk(loop)
    ):
        return False
    for parent in module.parents(loop):
        if isinstance(parent, FUNCTIONS):
            return WITHOUT_GRADIENTS.search(ast.unparse(parent)) is not None
        if isinstance(parent, ast.With) and WITHOUT_GRADIENTS.search(ast.unparse(parent.items[0])):
            return True
    return False


def _what_deals(module: Module, iterated: ast.expr) -> ast.AST | None:
    """The call that gives each process its part of what a loop goes over; None where none is seen."""
    while (
        isinstance(iterated, ast.Call)
        and iterated.args
        and not module.flow.types(iterated) & {"loader"}
    ):
        iterated = iterated.args[0]
    origins = module.flow.origins(iterated)
    calls = [origin.node for origin in origins if isinstance(origin.node, ast.Call)]
    if not calls or len(calls) < len(origins):
        return None
    found = [_dealing_call(module, call) for call in calls]
    return found[0] if all(one is not None for one in found) else None


def _dealing_call(module: Module, node: ast.Call) -> ast.AST | None:
    """`accelerator.prepare(...)`, or the sampler of a DataLoader."""
    if prepares_loader(module, node):
        return node
    call = module.flow.call(node)
    sampler = call.keywords.get("sampler") if call.named(*LOADERS) else None
    made = None if sampler is None else module.flow.producing_call(sampler)
    return made.node if made is not None and made.named(*SAMPLERS) else None


def _log_of_one_rank(module: Module) -> ast.AST | None:
    """The first place where rank 0 alone logs something."""
    for one in module.with_linked:
        for call in one.methods("print", "log"):
            if call.receiver is not None and "accelerator" in one.flow.types(call.receiver):
                return call.node
        for test in one.nodes(ast.If):
            if not is_one_process_test(one, test.test):
                continue
            for statement in test.body:
                if LOGS.search(ast.unparse(statement)):
                    return statement
    return None


def step_figures(module: Module) -> Iterator[Call]:
    """The calls of `self.log` and `self.log_dict` in the validation of a LightningModule."""
    for call in module.methods("log", "log_dict"):
        if not isinstance(call.receiver, ast.Name) or call.receiver.id != "self":
            continue
        around = list(module.parents(call.node))
        step = next((one for one in around if isinstance(one, FUNCTIONS)), None)
        owner = next((one for one in around if isinstance(one, ast.ClassDef)), None)
        if step is None or owner is None or step.name not in VALIDATION_STEPS:
            continue
        if any(base.endswith("LightningModule") for base in module.flow.bases(owner)):
            yield call


def lightning_figures(module: Module) -> Iterator[LoggedFigure]:
    """The figures of a LightningModule that each of several processes logs by itself."""
    figures = [call for call in step_figures(module) if _is_of_one_process(module, call)]
    several = _several_devices(module) if figures else ""
    if not several:
        return
    choosers = dict(_monitored_names(module))
    for call in figures:
        names = [
            name for name, value in _named_values(module, call) if not _is_metric(module, value)
        ]
        chosen = next((name for name in names if name in choosers), None)
        if names:
            yield LoggedFigure(call, chosen or names[0], several, choosers.get(chosen or ""))


def _is_of_one_process(module: Module, call: Call) -> bool:
    """Is nothing said of the other processes: no `sync_dist`, no `rank_zero_only`, no gathering in the files?"""
    if call.open or {"sync_dist", "rank_zero_only", "reduce_fx"} & call.keywords.keys():
        return False
    step = next(one for one in module.parents(call.node) if isinstance(one, FUNCTIONS))
    return re.search(r"all_gather|all_reduce|reduce\(", ast.unparse(step)) is None


def _several_devices(module: Module) -> str:
    """What the one Trainer of the files says of several devices; empty where it says nothing, or there are more."""
    trainers = [(one, call) for one in module.with_linked for call in one.calls(*TRAINERS)]
    if len(trainers) != 1:
        return ""
    home, call = trainers[0]
    devices = home.flow.value(call.keywords.get("devices"))
    nodes = home.flow.value(call.keywords.get("num_nodes"))
    count = len(devices) if isinstance(devices, list) else devices
    if type(count) is int and count == 1 and nodes in (None, 1):
        return ""
    if type(count) is int and count > 1:
        return f"devices={ast.unparse(call.keywords['devices'])}"
    strategy = home.flow.value(call.keywords.get("strategy"))
    if isinstance(strategy, str) and SEVERAL_STRATEGY.search(strategy):
        return f"strategy={strategy!r}"
    return ""


def _monitored_names(module: Module) -> Iterator[tuple[str, ast.AST]]:
    """The figures that callbacks go by, each with its callback."""
    for one in module.with_linked:
        for call in one.calls(*(f"*.{name}" for name in CHOOSERS)):
            name = one.flow.value(call.keywords.get("monitor"))
            if isinstance(name, str):
                yield name, call.node


def _named_values(module: Module, call: Call) -> Iterator[tuple[str, ast.expr]]:
    """The figures of `self.log("a", x)` and of `self.log_dict({"a": x})`."""
    given = call.argument(0, "name" if call.method == "log" else "dictionary")
    if given is None:
        return
    if call.method == "log":
        name, value = module.flow.value(given), call.argument(1, "value")
        if isinstance(name, str) and value is not None:
            yield name, value
        return
    entries, _ = module.flow.entries(given)
    yield from entries.items()


def _is_metric(module: Module, value: ast.expr) -> bool:
    """Is it a metric object, which reduces over processes by itself: `self.accuracy`, `self.accuracy.compute()`?"""
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        if value.func.attr != "compute":
            break
        value = value.func.value
    # A figure is computed in a local name or expression; an attribute of the module may be a metric.
    return (
        isinstance(value, ast.Attribute)
        and isinstance(value.value, ast.Name)
        and value.value.id == "self"
    )
