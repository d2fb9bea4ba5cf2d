"""Finds tests by which a reward function looks for the answer inside of the reference: they hold for an empty answer.

How it works: within one function, a name comes from the completion if it is the completion's parameter, the item of a
loop over it, or made from such a name. Every other parameter is a reference. `a in b` is a search in a text if both
orders are tested, or if `b` is made by a method of texts; otherwise `b` may be a list, in which nothing empty is.

The trade-off: values that pass through functions of the file are not followed, and a test of the answer's truth or
length anywhere in the function clears it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

COMPLETION_PARAMETERS = frozenset((
    "completions", "completion", "completion_ids", "solution_str", "response", "responses", "predict_str", "answers",
    "student_answer",
))  # fmt: skip
"""Names under which TRL, verl and their likes give a reward function what the model wrote"""
PROMPT_PARAMETERS = frozenset(("prompts", "prompt", "data_source", "extra_info"))
TEXT_METHODS = frozenset((
    "lower", "upper", "strip", "casefold", "replace", "group", "join", "lstrip", "rstrip", "title", "format",
))  # fmt: skip
"""Methods that give a text"""
LIST_CALLS = frozenset(("split", "splitlines", "findall", "list", "set", "tuple", "keys", "values"))


def searches_that_hold_for_empty_answers(function: ast.FunctionDef) -> Iterator[ast.expr]:
    """The tests of a function that an empty answer passes, in the order of its text."""
    from_completion = _names_from_completion(function)
    for answer, reference, search in (*_searches_in_texts(function), *_prefix_tests(function)):
        if not _reads(answer, from_completion) or _reads(reference, from_completion):
            continue
        if not _is_guarded(function, answer) and _pays(function, search):
            yield search


def _searches_in_texts(
    function: ast.FunctionDef,
) -> Iterator[tuple[ast.expr, ast.expr, ast.expr]]:
    """The tests `answer in reference` whose right side is a text: what is sought, in what, the test."""
    compares = [node for node in ast.walk(function) if isinstance(node, ast.Compare)]
    searches = [one for one in compares if len(one.ops) == 1 and isinstance(one.ops[0], ast.In)]
    pairs = {(ast.unparse(one.left), ast.unparse(one.comparators[0])) for one in searches}
    for search in searches:
        left, right = search.left, search.comparators[0]
        is_in_text = _is_text(right) or (ast.unparse(right), ast.unparse(left)) in pairs
        if is_in_text and _may_be_reference(right, function):
            yield left, right, search


def _prefix_tests(function: ast.FunctionDef) -> Iterator[tuple[ast.expr, ast.expr, ast.expr]]:
    """The tests `reference.startswith(answer)` and `endswith`: what is sought, in what, the test."""
    for node in ast.walk(function):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        if node.func.attr in ("startswith", "endswith") and len(node.args) == 1:
            yield node.args[0], node.func.value, node


def _names_from_completion(function: ast.FunctionDef) -> frozenset[str]:
    """The names of a function whose value comes from a completion."""
    arguments = (*function.args.args, *function.args.kwonlyargs)
    names = {one.arg for one in arguments if one.arg in COMPLETION_PARAMETERS}
    before = -1
    while names and len(names) != before:
        before = len(names)
        for node in ast.walk(function):
            names |= _names_bound_from(node, frozenset(names))
    return frozenset(names)


def _names_bound_from(node: ast.AST, names: frozenset[str]) -> set[str]:
    """The names that a statement or a loop binds to what comes from these names."""
    if isinstance(node, ast.For | ast.comprehension):
        return _loop_names_from(node.target, node.iter, names)
    if isinstance(node, ast.NamedExpr):
        return {node.target.id} if _reads(node.value, names) else set()
    if isinstance(node, ast.Assign) and _reads(node.value, names):
        targets = [part for target in node.targets for part in ast.walk(target)]
        return {part.id for part in targets if isinstance(part, ast.Name)}
    return set()


def _loop_names_from(target: ast.expr, source: ast.expr, names: frozenset[str]) -> set[str]:
    """The names of a loop that hold items of these names: by their place in `zip(completions, answers)`."""
    called = (
        source.func.id if isinstance(source, ast.Call) and isinstance(source.func, ast.Name) else ""
    )
    if isinstance(source, ast.Call) and isinstance(target, ast.Tuple):
        if called == "enumerate" and source.args:
            return _loop_names_from(target.elts[-1], source.args[0], names)
        if called == "zip":
            found: set[str] = set()
            for bound, given in zip(target.elts, source.args, strict=False):
                found |= _names_in(bound) if _reads(given, names) else set()
            return found
    return _names_in(target) if _reads(source, names) else set()


def _names_in(node: ast.AST) -> set[str]:
    """The names in an expression."""
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def _reads(node: ast.AST, names: frozenset[str]) -> bool:
    """Does an expression read one of these names?"""
    return any(isinstance(part, ast.Name) and part.id in names for part in ast.walk(node))


def _may_be_reference(node: ast.expr, function: ast.FunctionDef) -> bool:
    """Is a value read from a name that is no prompt: not a constant, as the options of a list are?"""
    names = _names_in(node)
    parameters = {one.arg for one in (*function.args.args, *function.args.kwonlyargs)}
    return bool(names - PROMPT_PARAMETERS) and not names <= (parameters & PROMPT_PARAMETERS)


def _is_text(node: ast.expr) -> bool:
    """Is an expression surely a text?"""
    if isinstance(node, ast.JoinedStr):
        return True
    if not isinstance(node, ast.Call):
        return False
    if isinstance(node.func, ast.Name):
        return node.func.id == "str"
    return isinstance(node.func, ast.Attribute) and node.func.attr in TEXT_METHODS - LIST_CALLS


def _is_guarded(function: ast.FunctionDef, answer: ast.expr) -> bool:
    """Does the function test whether an answer is empty, or how long it is?"""
    names = _names_in(answer)
    for node in ast.walk(function):
        for tested in _conditions(node):
            if _is_truth_of(tested, names) or _is_length_of(tested, names):
                return True
    return False


def _conditions(node: ast.AST) -> Iterator[ast.expr]:
    """The conditions that a node tests, and their parts."""
    if isinstance(node, ast.If | ast.IfExp | ast.While | ast.Assert):
        yield node.test
    if isinstance(node, ast.BoolOp):
        yield from node.values
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node.operand


def _is_truth_of(tested: ast.expr, names: set[str]) -> bool:
    """Is a condition the bare truth of one of these names, or of its text without spaces?"""
    if isinstance(tested, ast.UnaryOp) and isinstance(tested.op, ast.Not):
        tested = tested.operand
    if isinstance(tested, ast.Call) and isinstance(tested.func, ast.Attribute):
        tested = tested.func.value if tested.func.attr == "strip" else tested
    if isinstance(tested, ast.Call) and ast.unparse(tested.func) == "bool" and tested.args:
        tested = tested.args[0]
    return isinstance(tested, ast.Name) and tested.id in names


def _is_length_of(tested: ast.expr, names: set[str]) -> bool:
    """Does a condition compare a length or the empty text with one of these names?"""
    if not isinstance(tested, ast.Compare) or not _reads(tested, frozenset(names)):
        return False
    has_length = any(
        isinstance(part, ast.Call) and isinstance(part.func, ast.Name) and part.func.id == "len"
        for part in ast.walk(tested)
    )
    is_empty_text = any(
        isinstance(part, ast.Constant) and part.value == "" for part in ast.walk(tested)
    )
    return has_length or is_empty_text


def _pays(function: ast.FunctionDef, test: ast.expr) -> bool:
    """Does a test that holds give a reward, as far as it can be seen: not one that takes it away?"""
    for node in ast.walk(function):
        if isinstance(node, ast.IfExp) and _holds(node.test, test):
            return not _is_no_reward(node.body)
        if isinstance(node, ast.If) and _holds(node.test, test):
            given = [part for statement in node.body for part in ast.walk(statement)]
            numbers = [part for part in given if isinstance(part, ast.Constant | ast.UnaryOp)]
            return not (numbers and all(_is_no_reward(one) for one in numbers))
    return True


def _holds(node: ast.AST, part: ast.AST) -> bool:
    """Is a node part of another one, not below a `not`?"""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return False
    return node is part or any(_holds(one, part) for one in ast.iter_child_nodes(node))


def _is_no_reward(node: ast.expr) -> bool:
    """Is a value a number of 0 or less?"""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return True
    if not isinstance(node, ast.Constant) or isinstance(node.value, bool):
        return False
    return isinstance(node.value, int | float) and node.value <= 0
