"""Where a program itself asks which arguments a class takes, before or after it gives them.

Code for several releases looks at `trl.__version__`, at `inspect.signature(SFTTrainer)` or at the fields of a class,
or it catches the TypeError and calls again. What such a call gives is not what another release would refuse. The trade:
a condition is told by the words in it, so one that looks at another package's version excuses a call too.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from truetune.source.calls import Call
from truetune.source.module import Module
from truetune.source.qualified_names import shorten_library_name

ASKS_WHAT_IS_TAKEN = re.compile(
    r"version|signature|getfullargspec|hasattr|\.__init__|\.__name__|_fields|\bfields\b|\bparameters\b|co_varnames",
    re.I,
)
"""Words in a condition on the release, or on what a class takes"""
MAX_ALIASES = 5
"""Names of names that are followed: `Arguments = SFTConfig`"""
ERRORS_OF_REFUSED_ARGUMENTS = frozenset(("TypeError", "Exception", "BaseException"))
"""What catches the error that an argument raises which is not taken"""
CALLS_GIVING_VARIABLES = frozenset(("globals", "locals", "vars", "dir"))
"""Functions that give the variables that there are"""
ADDED_BY_UNSLOTH = frozenset(
    {
        "max_seq_length",
        "vllm_sampling_params",
        "unsloth_num_chunks",
        "unsloth_logit_chunk_multiplier",
        "unsloth_grpo_mini_batch",
        "context_parallel_size",
        "context_parallel_backend",
        "context_parallel_rotate_method",
    }
)
"""Arguments that unsloth writes into TRL's classes (unsloth/models/rl.py, release 2026.10.9)"""


def find_possible_names(module: Module, node: ast.expr, depth: int = 0) -> frozenset[str]:
    """The qualified names of all that an expression may be, where `try` and `if` import or assign it differently."""
    bindings = (
        module.scopes.reaching(node) if isinstance(node, ast.Name) and depth < MAX_ALIASES else []
    )
    found: set[str] = set()
    for binding in bindings:
        if binding.kind == "import" and binding.target is not None:
            found.add(shorten_library_name(binding.target))
        elif (
            binding.kind == "value"
            and not binding.path
            and isinstance(binding.value, (ast.Name, ast.Attribute))
        ):
            found |= find_possible_names(module, binding.value, depth + 1)
    name = module.flow.name(node)
    return frozenset(found | {name}) if name is not None else frozenset(found)


def arguments_added_by_subclass(module: Module, call: Call) -> frozenset[str]:
    """The fields and constructor's parameters that a class of the file adds to the class it is derived from."""
    found: set[str] = set()
    for origin in module.flow.origins(call.node.func):
        for item in origin.node.body if isinstance(origin.node, ast.ClassDef) else ():
            if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
                found.add(item.target.id)
            elif isinstance(item, ast.FunctionDef) and item.name == "__init__":
                found |= {parameter.arg for parameter in (*item.args.args, *item.args.kwonlyargs)}
    return frozenset(found)


def find_guarded_arguments(module: Module, call: Call) -> frozenset[str]:
    """The arguments of a call that the program gives only where it has asked whether they are taken."""
    if _is_repeated_after_refusal(module, call) or is_behind_version_check(module, call.node):
        return frozenset(call.keywords)
    written = {keyword.value for keyword in call.node.keywords if keyword.arg is not None}
    return frozenset(
        name
        for name, value in call.keywords.items()
        if (value not in written and is_behind_version_check(module, value))
        or _stands_under_its_name(module, name, value)
    )


def is_behind_version_check(module: Module, node: ast.AST) -> bool:
    """Does it stand in a branch whose condition looks at a release, or at what a class takes?"""
    inner: ast.AST = node
    for parent in module.parents(node):
        if isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            return False
        if (
            isinstance(parent, (ast.If, ast.IfExp))
            and inner is not parent.test
            and _asks_what_is_taken(module, parent.test)
        ):
            return True
        inner = parent
    return False


def _stands_under_its_name(module: Module, name: str, value: ast.expr) -> bool:
    """Is the argument given only where a test finds its name: `if "tokenizer" in taken: more["tokenizer"] = ...`?"""
    inner: ast.AST = value
    for parent in module.parents(value):
        if isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            return False
        if isinstance(parent, (ast.If, ast.IfExp)) and inner is not parent.test:
            where_true = (
                inner is parent.body if isinstance(parent, ast.IfExp) else inner in parent.body
            )
            for is_found, container in _tests_of_name(parent.test, name):
                if is_found is where_true and not _holds_values(container, value):
                    return True
        inner = parent
    return False


def _holds_values(container: ast.expr, value: ast.expr) -> bool:
    """Are these variables, or settings that the value is taken from, and not the names that a class takes?"""
    if (
        isinstance(container, ast.Call)
        and isinstance(container.func, ast.Name)
        and container.func.id in CALLS_GIVING_VARIABLES
    ):
        return True
    text = ast.unparse(container)
    return any(
        isinstance(node, (ast.Subscript, ast.Attribute)) and ast.unparse(node.value) == text
        for node in ast.walk(value)
    )


def _tests_of_name(test: ast.expr, name: str) -> Iterator[tuple[bool, ast.expr]]:
    """For each test of a name that decides the whole condition: whether it is found where the condition is true, and
    in what."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield from (
            (not is_found, container) for is_found, container in _tests_of_name(test.operand, name)
        )
    elif isinstance(test, ast.BoolOp):
        decides = isinstance(test.op, ast.And)
        tests = (one for part in test.values for one in _tests_of_name(part, name))
        yield from (one for one in tests if one[0] is decides)
    elif isinstance(test, ast.Compare) and len(test.ops) == 1 and _is_text(test.left, name):
        if isinstance(test.ops[0], (ast.In, ast.NotIn)):
            yield isinstance(test.ops[0], ast.In), test.comparators[0]


def _is_text(node: ast.expr, text: str) -> bool:
    return isinstance(node, ast.Constant) and node.value == text


def _asks_what_is_taken(module: Module, test: ast.expr) -> bool:
    return ASKS_WHAT_IS_TAKEN.search(ast.unparse(test)) is not None


def _is_repeated_after_refusal(module: Module, call: Call) -> bool:
    """Is it tried, and called again with other arguments where it is refused; or is it that second call?"""
    for attempt in _attempts_around(module, call.node):
        catching = [handler for handler in attempt.handlers if _catches_refusal(handler)]
        if any(_catches_type_error_alone(handler) for handler in catching):
            return True
        again = [
            node for handler in catching for node in ast.walk(handler) if isinstance(node, ast.Call)
        ]
        function = ast.unparse(call.node.func)
        if any(node is not call.node and ast.unparse(node.func) == function for node in again):
            return True
        if any(node is call.node for node in again):
            return True
    return False


def _attempts_around(module: Module, node: ast.AST) -> Iterator[ast.Try]:
    for parent in module.parents(node):
        if isinstance(parent, ast.Try):
            yield parent


def _catches_refusal(handler: ast.ExceptHandler) -> bool:
    return handler.type is None or any(
        isinstance(node, ast.Name) and node.id in ERRORS_OF_REFUSED_ARGUMENTS
        for node in ast.walk(handler.type)
    )


def _catches_type_error_alone(handler: ast.ExceptHandler) -> bool:
    return isinstance(handler.type, ast.Name) and handler.type.id == "TypeError"
