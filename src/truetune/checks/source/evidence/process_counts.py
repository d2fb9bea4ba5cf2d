"""Says how many processes run a script, as far as its code and the commands for it say: what starts
several, and what refuses them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from truetune.settings.stacks.find_who_reads_config_or_starts_script import (
    SEVERAL_PROCESSES,
    commands_that_launch_several_processes,
)
from truetune.source.parsed_source_file import Module

VARIABLES = ("LOCAL_RANK", "WORLD_SIZE")
STARTS = (
    "*.init_process_group",
    "*.DistributedDataParallel",
    "torch.multiprocessing.spawn",
    "*.mp.spawn",
)
LAUNCHERS = ("accelerate.notebook_launcher",)
# 400 characters: a launch with its options over several lines; beyond, another command begins.
LAUNCH = (
    r"(torchrun|torch\.distributed\.(launch|run)|accelerate"
    r" launch)\b(?:[^\n\\]|\\\r?\n){{0,400}}?\b{name}\b"
)
"""A command that starts this file, also over several lines"""
COUNTS = re.compile(
    r"WORLD_SIZE|LOCAL_RANK|get_world_size|num_processes|is_initialized|local_rank|distributed_type",
    re.I,
)
"""What says how many processes there are, or whether there are several"""
DEPTH = 4
"""Names that are followed from a condition: ddp, world_size, os.environ"""
ENDS = ("exit", "sys.exit", "os._exit", "quit")


def command_starting_several_processes(module: Module) -> str | None:
    """The command that starts the file as several processes, in a comment or text of it, or in a
    file of its project; None where there is none."""
    name = re.escape(module.path.replace("\\", "/").rpartition("/")[2])
    for match in re.finditer(LAUNCH.format(name=name), module.text):
        if SEVERAL_PROCESSES.search(match[0]):
            return " ".join(match[0].replace("\\", " ").replace("#", " ").split())
    return next(commands_that_launch_several_processes(Path(module.path)), None)


def signs_of_several_processes(module: Module) -> Iterator[ast.AST]:
    """Code that reads the variables of a launcher, or starts processes: no comment, no text,
    nothing that it sets.
    """
    for node in module.nodes(ast.Constant):
        reader = module.scopes.parent.get(node)
        if (
            node.value not in VARIABLES
            or reader is None
            or isinstance(getattr(reader, "ctx", None), ast.Store)
        ):
            continue
        reader_text = ast.unparse(reader.func if isinstance(reader, ast.Call) else reader)
        if "environ" in reader_text or "getenv" in reader_text:
            yield reader
    for call in module.calls(*STARTS):
        yield call.node.func
    for call in module.calls(*LAUNCHERS):
        count = call.argument(2, "num_processes")
        # 0 and 1 start the function in the notebook's own process.
        if count is None or module.flow.value(count) not in (0, 1):
            yield call.node.func


def is_kept_from_several_processes(module: Module, node: ast.AST) -> bool:
    """Does a condition on the number of processes keep this from being reached by several?"""
    inner = node
    for around in module.parents(node):
        if (
            isinstance(around, (ast.If, ast.IfExp))
            and inner is not around.test
            and _depends_on_process_count(module, around.test)
        ):
            first = around.body if isinstance(around.body, list) else [around.body]
            if inner not in first or not _tests_for_several_processes(module, around.test):
                return True
        inner = around
    return False


def refuses_several_processes(module: Module) -> bool:
    """Does the file raise, or exit, where there is more than one process?"""
    for test in module.nodes(ast.If):
        ends = any(isinstance(node, ast.Raise) or _ends_program(module, node) for node in test.body)
        if ends and any(
            _tests_for_several_processes(module, part) for part in _alternatives_of_test(test.test)
        ):
            return True
    return False


def _ends_program(module: Module, statement: ast.stmt) -> bool:
    """Does a statement end the program?"""
    call = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(call, ast.Call) and module.flow.name(call.func) in ENDS


def _alternatives_of_test(test: ast.expr) -> list[ast.expr]:
    """The parts of `a or b`, each of which is enough; else the test alone."""
    return test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or) else [test]


def _tests_for_several_processes(module: Module, test: ast.expr) -> bool:
    """Is it true for more than one process: `world_size > 1`, `!= 1`, `>= 2`, or a name for that?"""
    origins = module.flow.origins(test) if isinstance(test, ast.Name) else ()
    test = next((origin.node for origin in origins if isinstance(origin.node, ast.Compare)), test)
    if (
        not isinstance(test, ast.Compare)
        or len(test.ops) != 1
        or not _depends_on_process_count(module, test.left)
    ):
        return False
    limit = module.flow.value(test.comparators[0])
    more_than_one = isinstance(test.ops[0], (ast.Gt, ast.NotEq)) and limit == 1
    return more_than_one or (isinstance(test.ops[0], ast.GtE) and limit == 2)


def _depends_on_process_count(module: Module, test: ast.AST, depth: int = 0) -> bool:
    """Does it depend on how many processes there are, itself or through the names that it reads?"""
    if COUNTS.search(ast.unparse(test)):
        return True
    if depth == DEPTH:
        return False
    names = (node for node in ast.walk(test) if isinstance(node, (ast.Name, ast.Attribute)))
    origins = (origin.node for name in names for origin in module.flow.origins(name))
    return any(
        isinstance(node, ast.expr) and _depends_on_process_count(module, node, depth + 1)
        for node in origins
        if node is not test
    )
