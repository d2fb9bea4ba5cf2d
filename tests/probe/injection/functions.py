"""The functions that can run inside the user's process, listed from the source; and faults put into them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[3] / "src"
PROBE = ROOT / "truetune" / "probe"
START = PROBE / "hooked" / "sitecustomize.py"
REHEARSAL = ("truetune.probe.rehearsal_hook", "truetune.probe.rehearse_by_memorising_and_reciting")
"""The other mode's: they are loaded in a rehearsal alone, where a failure must end the process"""
FAULTS = ("raise", "exit", "interrupt", "hang", "spin", "none", "weird")

ENTRY_POINTS = frozenset({
    ("sitecustomize", "ImportListener.find_spec"),
    ("sitecustomize", "ImportListener.find_spec.exec_module"),
    ("sitecustomize", "load_hook_after_package_import"),
    ("sitecustomize", "load_truetune"),
    ("sitecustomize", "note_failed_start"),
    ("sitecustomize", "keep_last_prints.write_and_keep"),
    ("sitecustomize", "start_waiting_for_packages_without_failing"),
    ("sitecustomize", "start_waiting_for_packages_without_failing.ring"),
    ("sitecustomize", "import_next_sitecustomize"),
    ("truetune.probe.trainer_hook", "patch_trainer.on_train_begin"),
    ("truetune.probe.own_loop_hook", "watch_optimizers.before_step"),
    ("truetune.probe.own_loop_hook", "OwnLoop._watch_forward.after_forward"),
    ("truetune.probe.own_loop_hook", "OwnLoop._listen_to_gradient.before_accumulation"),
    ("truetune.probe.record_rollouts_of_trl_trainer", "RolloutRecorder._noting.call"),
    ("truetune.probe.record_rollouts_of_trl_trainer", "RolloutRecorder._listening.before_accumulation"),
    ("truetune.probe.find_trainers_and_their_datasets", "NewTrainer.__call__"),
    ("truetune.probe.follow_canary_through_maps", "_wrap_constructor.call"),
    ("truetune.probe.follow_canary_through_maps", "_wrap_method.call"),
    ("truetune.probe.follow_canary_through_maps", "_wrap_concatenate.call"),
})  # fmt: skip
"""What the user's program calls: each consists of a call of `contain`, and of what it wraps, or loads `contain`"""
BOUNDARY = "truetune.probe.contain_own_failures_in_user_program"
"""The boundary itself: nothing stands behind it"""


class Function(NamedTuple):
    module: str
    name: str
    """Qualified, with its class or outer function"""
    line: int

    @property
    def is_boundary(self) -> bool:
        """Is a fault of its own outside what the boundary can hold?"""
        return self.module == BOUNDARY or (self.module, self.name) in ENTRY_POINTS


def functions() -> list[Function]:
    """Of all modules of the probe that a run can import, in the order of modules and lines."""
    found = [(path_of(module), module) for module in sorted(reachable())]
    return [
        function
        for path, module in found
        for function, _ in _functions(ast.parse(path.read_text()), module)
    ]


def reachable() -> set[str]:
    """Modules of `truetune.probe` that are imported, at any depth, from the hook of a run."""
    found: set[str] = set()
    waiting = ["sitecustomize"]
    while waiting:
        module = waiting.pop()
        if module in found or module in REHEARSAL:
            continue
        found.add(module)
        waiting.extend(_imported(ast.parse(path_of(module).read_text())))
        if module == "truetune.probe.laws":  # it imports all modules of its folder by their names
            waiting.extend(f"{module}.{path.stem}" for path in (PROBE / "laws").glob("[a-z]*.py"))
    return found


def path_of(module: str) -> Path:
    """The source file of a module."""
    if module == "sitecustomize":
        return START
    path = ROOT.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("truetune.probe"):
            assert node.module is not None
            for name in (node.module, *(f"{node.module}.{alias.name}" for alias in node.names)):
                if path_of(name).is_file():
                    yield name


def _functions(tree: ast.AST, module: str, outer: str = "") -> Iterator[tuple[Function, ast.AST]]:
    for node in ast.iter_child_nodes(tree):
        name = getattr(node, "name", "<lambda>" if isinstance(node, ast.Lambda) else "")
        qualified = f"{outer}.{name}" if outer and name else name or outer
        if isinstance(node, ast.FunctionDef | ast.Lambda):
            yield Function(module, qualified, node.lineno), node
        inner = qualified if isinstance(node, ast.FunctionDef | ast.ClassDef) else outer
        yield from _functions(node, module, inner)


def with_fault(function: Function, fault: str, reached: str) -> ast.Module:
    """The module of a function, in which this one begins with a fault; the file `reached` is made as it happens."""
    tree = ast.parse(path_of(function.module).read_text())
    node = next(node for found, node in _functions(tree, function.module) if found == function)
    call = f"__import__('tests.probe.injection.faults', fromlist=['x']).{fault}_({reached!r})"
    if isinstance(node, ast.Lambda):
        node.body = ast.parse(call, mode="eval").body
    elif isinstance(node, ast.FunctionDef):
        returns = ast.parse(f"def f():\n    return {call}").body[0]
        assert isinstance(returns, ast.FunctionDef)
        node.body = [*returns.body, *node.body]  # what follows is kept: a generator stays one
    return ast.fix_missing_locations(tree)
