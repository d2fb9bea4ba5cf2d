"""Finds rows of which a script takes a part for each process, and which something else then divides
among the processes again.

How it works: from the rows that a trainer, a `DistributedSampler`, Accelerate or Lightning divides,
back through what they are made of. A part is one whose choice is computed from the number of this
process: an index of `shard`, a slice, a range, a condition, the name of a file.

The trade-off: only numbers that can't mean anything else count as that of the process (`rank`,
`process_index`, `get_rank()`, `RANK`). A loop over shards has an index too, and reads all of them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.source.evidence.accumulation_by_hand_and_by_engine import DEEPSPEED
from truetune.checks.source.evidence.models_trained_and_asked import TRAINERS
from truetune.checks.source.evidence.nodes_that_an_expression_is_computed_from import backward_slice
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.evaluate_constant_expressions import UNKNOWN
from truetune.source.parsed_source_file import Module

PROCESS_NUMBER = re.compile(
    r"(?:local_|global_|my_|node_|dist_|ddp_|dp_|data_parallel_|\b)(?:rank|RANK)$"
    r"|^(?:LOCAL_|GLOBAL_)?RANK$|^process_(?:index|id|rank)$|PROCID$|^get_(?:global_|node_local_)?rank$"
)
"""In names, attributes and variables of launchers: the number of this process"""
OWN_LOADERS = re.compile(r"def (?:get_train_dataloader|_get_train_sampler|get_train_sampler)\b")
"""A trainer that makes its loader or sampler itself may leave the rows as they are"""
SAMPLERS = ("torch.*.DistributedSampler",)
LOADERS = ("torch.utils.data.DataLoader", "torch.utils.data.dataloader.DataLoader")
LIGHTNING = ("lightning.*Trainer", "pytorch_lightning.Trainer", "lightning.Trainer")
FABRICS = ("lightning.*Fabric", "lightning_fabric.Fabric")
SAMPLER_SWITCHES = ("use_distributed_sampler", "replace_sampler_ddp")
FILE_READERS = ("open", "datasets.load_dataset", "datasets.load_from_disk", "pandas.read_*")
READER_METHODS = ("open", "read_text", "from_json", "from_csv", "from_parquet")
MAX_CLASS_PARTS = 2_000
"""Nodes of a data set's class that are read. Chosen, not measured: a long class has a thousand"""


class TwiceDividedRows(NamedTuple):
    """Rows that are divided twice."""

    part: ast.AST
    """Where the script takes the part of a process"""
    again: ast.AST
    """The call that divides what it is given"""
    divider: str
    """What divides again, in words: `SFTTrainer`"""


def find_twice_divided_rows(module: Module) -> Iterator[TwiceDividedRows]:
    """Each call that divides rows of which a process has a part only; one part each."""
    for call, rows, divider in _divisions_with_rows(module):
        part = next(_process_parts_in_rows(module, rows), None)
        if part is not None:
            yield TwiceDividedRows(part, call.node, divider)


def calls_dividing_rows(module: Module) -> Iterator[Call]:
    """Calls that divide the rows that they are given among the processes."""
    for call, _, _ in _divisions_with_rows(module):
        yield call


def _divisions_with_rows(module: Module) -> Iterator[tuple[Call, ast.expr, str]]:
    """Calls that divide rows, with the rows or the loader of them."""
    yield from _trainers_adding_own_sampler(module)
    for call in module.calls(*SAMPLERS):
        rows = call.argument(0, "dataset")
        replicas = call.argument(1, "num_replicas")
        if rows is not None and (replicas is None or module.flow.value(replicas) != 1):
            yield call, rows, "DistributedSampler"
    for call in module.calls(DEEPSPEED):
        rows = call.argument(4, "training_data")
        if rows is not None and module.flow.value(rows) is not None:
            yield call, rows, "deepspeed.initialize(training_data=...)"
    yield from _prepared_loaders_without_own_sampler(module)


def _trainers_adding_own_sampler(module: Module) -> Iterator[tuple[Call, ast.expr, str]]:
    """Trainers that put a sampler of theirs into the loader of their rows."""
    if any(OWN_LOADERS.search(part.text) for part in module.self_and_files_run_together):
        return
    for call in module.calls(*TRAINERS):
        rows = call.keywords.get("train_dataset")
        if rows is not None:
            name = next((name for name in call.names if name.endswith("Trainer")), "the trainer")
            yield call, rows, name.rpartition(".")[2]


def _prepared_loaders_without_own_sampler(module: Module) -> Iterator[tuple[Call, ast.expr, str]]:
    """Loaders without a sampler of their own that Accelerate, Fabric or Lightning puts one into."""
    for call in module.methods("prepare", "prepare_data_loader"):
        if "accelerator" in module.flow.types(call.receiver):
            yield from _divisions_of_loaders_among_arguments(
                module, call, call.args, "accelerator.prepare"
            )
    if any(_leaves_samplers_as_they_are(one) for one in module.calls(*LIGHTNING, *FABRICS)):
        return
    if any(module.calls(*FABRICS)):
        for call in module.methods("setup_dataloaders"):
            if not _leaves_samplers_as_they_are(call):
                yield from _divisions_of_loaders_among_arguments(
                    module, call, call.args, "fabric.setup_dataloaders"
                )
    if any(module.calls(*LIGHTNING)):
        for call in module.methods("fit"):
            arguments = (*call.args[1:], *call.keywords.values())
            yield from _divisions_of_loaders_among_arguments(
                module, call, arguments, "Lightning's Trainer"
            )


def _divisions_of_loaders_among_arguments(
    module: Module, call: Call, given: tuple[ast.expr, ...], divider: str
) -> Iterator[tuple[Call, ast.expr, str]]:
    """The rows of the loaders among some arguments."""
    for argument in given:
        made = module.flow.producing_call(argument)
        if made is None or not made.named(*LOADERS):
            continue
        rows = made.argument(0, "dataset")
        samplers = (made.argument(3, "sampler"), made.argument(4, "batch_sampler"))
        if rows is not None and not made.open and not any(samplers):
            yield call, rows, divider


def _leaves_samplers_as_they_are(call: Call) -> bool:
    """Is it told to leave samplers as they are?"""
    switches = (call.keywords.get(name) for name in SAMPLER_SWITCHES)
    return any(isinstance(one, ast.Constant) and one.value is False for one in switches)


def _process_parts_in_rows(module: Module, rows: ast.expr) -> Iterator[ast.AST]:
    """The expressions that take the part of this process, in what rows are made of."""
    for node in backward_slice(module, rows):
        if takes_process_part(module, node):
            yield node
        if isinstance(node, ast.Call):
            yield from _process_parts_in_class(module, node)


def _process_parts_in_class(module: Module, made: ast.Call) -> Iterator[ast.AST]:
    """Parts that the class of a data set takes by itself, in `__init__`, `__iter__` or
    `__getitem__`.
    """
    for origin in module.flow.origins(made.func):
        if not isinstance(origin.node, ast.ClassDef):
            continue
        for number, node in enumerate(ast.walk(origin.node)):
            if number > MAX_CLASS_PARTS:
                break
            if takes_process_part(module, node):
                yield node


def takes_process_part(module: Module, node: ast.AST) -> bool:
    """Does an expression choose rows by the number of this process?"""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
        bounds = (node.slice.lower, node.slice.upper, node.slice.step)
        return any(depends_on_process_number(module, one) for one in bounds if one is not None)
    if isinstance(node, ast.ListComp | ast.GeneratorExp):
        return any(
            depends_on_process_number(module, test) for one in node.generators for test in one.ifs
        )
    if isinstance(node, ast.For | ast.AsyncFor):
        return any(leaves_out_rows_of_other_processes(module, statement) for statement in node.body)
    return isinstance(node, ast.Call) and _call_takes_process_part(module, module.flow.call(node))


def leaves_out_rows_of_other_processes(module: Module, statement: ast.stmt) -> bool:
    """Does a statement leave out the rows of other processes: `if i % world != rank: continue`, or
    `if i % world == rank: yield row`?
    """
    if not isinstance(statement, ast.If):
        return False
    ends = isinstance(statement.body[-1], ast.Continue) or any(
        isinstance(part, ast.Yield) for one in statement.body for part in ast.walk(one)
    )
    has_remainder = any(
        isinstance(part, ast.BinOp) and isinstance(part.op, ast.Mod)
        for part in ast.walk(statement.test)
    )
    return ends and has_remainder and depends_on_process_number(module, statement.test)


def _call_takes_process_part(module: Module, call: Call) -> bool:
    """Is it a call that gives some of the rows, which the number of the process chooses?"""
    chosen: list[ast.expr | None] = []
    if call.method == "shard":
        chosen = [call.argument(1, "index")]
    elif call.named("*split_dataset_by_node"):
        chosen = [call.argument(1, "rank")]
    elif call.named("itertools.islice"):
        chosen = list(call.args[1:])
    elif call.method == "select":
        chosen = [call.argument(0, "indices")]
    elif call.named("torch.utils.data.Subset"):
        chosen = [call.argument(1, "indices")]
    elif call.method == "filter":
        function = call.argument(0, "function")
        chosen = [function.body if isinstance(function, ast.Lambda) else None]
    elif call.named(*FILE_READERS) or call.method in READER_METHODS:
        chosen = [*call.args[:2], call.keywords.get("data_files")]
    return any(depends_on_process_number(module, one) for one in chosen if one is not None)


def depends_on_process_number(module: Module, expression: ast.expr) -> bool:
    """Is an expression computed from the number of this process?"""
    return any(_is_process_number(module, part) for part in backward_slice(module, expression))


def _is_process_number(module: Module, part: ast.AST) -> bool:
    """Is it the number of this process: `rank`, `args.process_index`, `os.environ["RANK"]`?"""
    if isinstance(part, ast.Name):
        # A number that the script writes is the same in all processes, as the rank of an adapter.
        is_number = PROCESS_NUMBER.search(
            part.id
        ) is not None and not _is_variable_of_loop_over_processes(module, part)
        return is_number and module.flow.value(part) is UNKNOWN
    if isinstance(part, ast.Attribute):
        return PROCESS_NUMBER.search(part.attr) is not None
    if isinstance(part, ast.Constant) and isinstance(part.value, str):
        return PROCESS_NUMBER.search(part.value) is not None
    return False


def _is_variable_of_loop_over_processes(module: Module, name: ast.Name) -> bool:
    """Is it the variable of a loop: `for rank in range(world)` goes through the parts of all
    processes?
    """
    targets = [loop.target for loop in module.nodes(ast.For)]
    targets += [one.target for one in module.nodes(ast.comprehension)]
    return any(
        isinstance(part, ast.Name) and part.id == name.id
        for target in targets
        for part in ast.walk(target)
    )
