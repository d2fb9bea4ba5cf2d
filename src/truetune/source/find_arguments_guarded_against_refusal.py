"""Finds the arguments that a program guards itself: it asks whether a class takes them, or catches the refusal.

Code for several releases looks at `trl.__version__`, at `inspect.signature(SFTTrainer)` or at the fields of a class,
or it catches the TypeError and calls again. What such a call gives is not what another release would refuse. The
trade-off: a condition is told by the words in it, so one that looks at another package's version excuses a call too.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.name_bindings_in_scopes import Binding
from truetune.source.parsed_source_file import Module
from truetune.source.shorten_qualified_names import shorten_library_name

ASKS_WHAT_IS_TAKEN = re.compile(
    r"version|signature|getfullargspec|hasattr|\.__init__|\.__name__|_fields|\bfields\b|\bparameters\b|co_varnames",
    re.I,
)
"""Words in a condition on the release, or on what a class takes"""
MAX_ALIASES = 5
"""Names of names that are followed: `Arguments = SFTConfig`. Chosen, not measured: it ends
cycles, and scripts use one"""
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


def qualified_names_over_try_and_if_branches(
    module: Module, node: ast.expr, depth: int = 0
) -> frozenset[str]:
    """The qualified names of all that an expression may be, if `try` and `if` import or assign it
    differently.
    """
    bindings: tuple[Binding, ...] = ()
    if isinstance(node, ast.Name) and depth < MAX_ALIASES:
        bindings = module.scopes.bindings_that_reach(node)
    names: set[str] = set()
    for binding in bindings:
        if binding.kind == "import":
            names.add(shorten_library_name(binding.target))
            continue
        is_alias = binding.kind == "value" and not binding.path
        if is_alias and isinstance(binding.value, (ast.Name, ast.Attribute)):
            names |= qualified_names_over_try_and_if_branches(module, binding.value, depth + 1)
    name = module.flow.name(node)
    return frozenset(names | {name}) if name is not None else frozenset(names)


def arguments_added_by_subclass(module: Module, call: Call) -> frozenset[str]:
    """The fields and constructor's parameters that a class of the file adds to the class it is derived from."""
    names: set[str] = set()
    for origin in module.flow.origins(call.node.func):
        for item in origin.node.body if isinstance(origin.node, ast.ClassDef) else ():
            if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
                names.add(item.target.id)
            elif isinstance(item, ast.FunctionDef) and item.name == "__init__":
                names |= {parameter.arg for parameter in (*item.args.args, *item.args.kwonlyargs)}
    return frozenset(names)


def arguments_guarded_by_support_checks(module: Module, call: Call) -> frozenset[str]:
    """The arguments of a call that the program gives only where it has asked whether they are taken."""
    if _is_retried_after_type_error(module, call) or is_behind_release_or_signature_check(
        module, call.node
    ):
        return frozenset(call.keywords)
    # What stands in the call itself is judged with the call; what comes by `**kwargs` may be set under a condition.
    written = {keyword.value for keyword in call.node.keywords if keyword.arg is not None}
    return frozenset(
        name
        for name, value in call.keywords.items()
        if (value not in written and is_behind_release_or_signature_check(module, value))
        or _is_given_only_if_name_found(module, name, value)
    )


def is_behind_release_or_signature_check(module: Module, node: ast.AST) -> bool:
    """Does it stand in a branch whose condition looks at a release, or at what a class takes?"""
    inner: ast.AST = node
    for parent in module.parents(node):
        if isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            return False
        if (
            isinstance(parent, (ast.If, ast.IfExp))
            and inner is not parent.test
            and _condition_checks_release_or_signature(module, parent.test)
        ):
            return True
        inner = parent
    return False


def _is_given_only_if_name_found(module: Module, name: str, value: ast.expr) -> bool:
    """Is the argument given only if a test finds its name: `if "tokenizer" in taken:
    more["tokenizer"] = ...`?
    """
    inner: ast.AST = value
    for parent in module.parents(value):
        if isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            return False
        if isinstance(parent, (ast.If, ast.IfExp)) and inner is not parent.test:
            branch_is_true = _is_in_true_branch(parent, inner)
            for is_found, container in _find_membership_tests(parent.test, name):
                if is_found is branch_is_true and not _container_holds_settings_of_value(
                    container, value
                ):
                    return True
        inner = parent
    return False


def _is_in_true_branch(condition: ast.If | ast.IfExp, part: ast.AST) -> bool:
    """Does this part of an `if` run where its condition is true?"""
    if isinstance(condition, ast.IfExp):
        return part is condition.body
    return part in condition.body


def _container_holds_settings_of_value(container: ast.expr, value: ast.expr) -> bool:
    """Does a container hold variables or settings that the value is taken from, and not the names
    that a class takes?

    `if "lr" in settings: Trainer(lr=settings["lr"])` asks what the user set, not what the class takes.
    """
    if isinstance(container, ast.Call) and isinstance(container.func, ast.Name):
        if container.func.id in CALLS_GIVING_VARIABLES:
            return True
    text = ast.unparse(container)
    return any(
        isinstance(node, (ast.Subscript, ast.Attribute)) and ast.unparse(node.value) == text
        for node in ast.walk(value)
    )


def _find_membership_tests(test: ast.expr, name: str) -> Iterator[tuple[bool, ast.expr]]:
    """For each test of a name that decides the whole condition: whether it is found where the condition is true, and
    in what."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        for is_found, container in _find_membership_tests(test.operand, name):
            yield not is_found, container
    elif isinstance(test, ast.BoolOp):
        # A true `and` has only true parts, and a false `or` only false ones; of the other cases nothing follows.
        is_and = isinstance(test.op, ast.And)
        for part in test.values:
            for is_found, container in _find_membership_tests(part, name):
                if is_found is is_and:
                    yield is_found, container
    elif isinstance(test, ast.Compare) and len(test.ops) == 1 and _is_literal_text(test.left, name):
        if isinstance(test.ops[0], (ast.In, ast.NotIn)):
            yield isinstance(test.ops[0], ast.In), test.comparators[0]


def _is_literal_text(node: ast.expr, text: str) -> bool:
    """Is it this text, as a literal?"""
    return isinstance(node, ast.Constant) and node.value == text


def _condition_checks_release_or_signature(module: Module, test: ast.expr) -> bool:
    """Does a condition look at a release, or at what a class takes?"""
    return ASKS_WHAT_IS_TAKEN.search(ast.unparse(test)) is not None


def _is_retried_after_type_error(module: Module, call: Call) -> bool:
    """Is it tried, and called again with other arguments where it is refused; or is it that second call?"""
    return any(
        _catches_type_error_and_calls_again(attempt, call.node)
        for attempt in _try_statements_around(module, call.node)
    )


def _catches_type_error_and_calls_again(attempt: ast.Try, call: ast.Call) -> bool:
    """Does a `try` catch what a refused argument raises, and call the same function again?

    Who catches a TypeError alone expects just that refusal, whatever is done then.
    """
    catching = [handler for handler in attempt.handlers if _catches_type_error(handler)]
    if any(_catches_type_error_alone(handler) for handler in catching):
        return True
    function = ast.unparse(call.func)
    for handler in catching:
        for node in ast.walk(handler):
            if isinstance(node, ast.Call) and (node is call or ast.unparse(node.func) == function):
                return True
    return False


def _try_statements_around(module: Module, node: ast.AST) -> Iterator[ast.Try]:
    """The `try` statements around a node, from the inside out."""
    for parent in module.parents(node):
        if isinstance(parent, ast.Try):
            yield parent


def _catches_type_error(handler: ast.ExceptHandler) -> bool:
    """Does an `except` catch the TypeError of an argument that is not taken?"""
    return handler.type is None or any(
        isinstance(node, ast.Name) and node.id in ERRORS_OF_REFUSED_ARGUMENTS
        for node in ast.walk(handler.type)
    )


def _catches_type_error_alone(handler: ast.ExceptHandler) -> bool:
    """Does it catch TypeError and nothing else?"""
    return isinstance(handler.type, ast.Name) and handler.type.id == "TypeError"
