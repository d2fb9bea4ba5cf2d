"""Follows generated texts from where they are decoded to where they are used as answers with their
prompt still in front.

A text is followed from `decode` through names, lists, loops and functions. A sign of a cut anywhere
in its function is enough to say nothing of a text that is only kept: whether the prompt is cut off
later cannot be seen.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TypeGuard

from truetune.checks.source.evidence.generate_call_inputs import generate_calls, is_causal_model
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.evaluate_constant_expressions import UNKNOWN
from truetune.source.parsed_source_file import Module
from truetune.source.shorten_qualified_names import (
    spelling_of_variable,
    variable_of_indexed_or_attribute,
)

ANSWER_NAME = re.compile(
    r"(^|_)(predictions?|preds?|responses?|answers?|completions?|hypothes[ie]s|candidates?|chosen|"
    r"rejected)(_texts?|_list)?$",
    re.I,
)
"""Names under which answers are kept; not `output` or `generated_text`, which name the whole as often"""
METRIC_METHODS = ("add", "add_batch", "compute")
PREDICTION_ARGUMENTS = ("prediction", "predictions", "hypotheses")
"""Arguments of metrics that are given answers"""
TRIMMING_METHODS = ("strip", "rstrip", "lstrip", "lower", "upper")
"""Methods of a text that leave the prompt in it"""
PROMPT_WORD = re.compile(
    r"prompt|question|quer(y|ies)|instruction|inputs?\b|stop|marker|template|banned", re.I
)
"""What a text is searched for to see where its answer begins or ends, and not to score it"""
REFERENCE_WORD = re.compile(
    r"answer|gold|target|label|reference|expected|truth|solution|correct", re.I
)
"""What a text is compared with to score it"""
ITERATING_CALLS = (
    "zip",
    "enumerate",
    "list",
    "tuple",
    "sorted",
    "reversed",
    "tqdm.tqdm",
    "tqdm.auto.tqdm",
)
"""Calls that give the texts of a list one by one"""
MAX_STEPS = 6
"""Names and lists that a text is followed through"""
CUT_METHODS = frozenset(
    (
        "split",
        "rsplit",
        "partition",
        "rpartition",
        "replace",
        "removeprefix",
        "find",
        "rfind",
        "index",
        "rindex",
        "splitlines",
    )
)
"""Methods of a text by which its prompt may be cut off"""
PATTERN_FUNCTIONS = ("re.*", "regex.*")


def decodes_of_generated_ids(module: Module) -> Iterator[Call]:
    """Calls of `decode` and `batch_decode` on the output of a causal model, or on a part of it."""
    generated = ((call.node, call.receiver) for call in generate_calls(module))
    causal = {
        node for node, model in generated if model is not None and is_causal_model(module, model)
    }
    for call in module.methods("decode", "batch_decode"):
        sequences_argument = call.argument(
            0, "token_ids" if call.method == "decode" else "sequences"
        )
        if sequences_argument is None or not causal:
            continue
        if all(made in causal for made in _sources_of_decoded_ids(module, sequences_argument)):
            yield call


def _sources_of_decoded_ids(module: Module, expression: ast.expr) -> list[ast.AST]:
    """What gave the ids that are decoded: also of `for ids in outputs`."""
    nodes: list[ast.AST] = []
    for origin in module.flow.origins(variable_of_indexed_or_attribute(expression)):
        if origin.element and not origin.path and isinstance(origin.node, ast.expr):
            nodes += [
                one.node
                for one in module.flow.origins(variable_of_indexed_or_attribute(origin.node))
            ]
        else:
            nodes.append(origin.node)
    return nodes


def use_as_answer_with_prompt(module: Module, text: ast.expr) -> ast.AST | None:
    """Where a text with its prompt is used as an answer, and nothing cuts the prompt; None where it
    is not known.

    A comparison or a metric gets the text as it was followed, so that nothing cut it. What is kept
    may be cut later: there a cut of anything that holds the text is enough to say nothing.
    """
    names: set[str] = set()
    uses = list(_metric_and_keeping_uses_of_text(module, text, names))
    scored = next((use for use in uses if _is_compared_or_given_to_metric(module, use)), None)
    if scored is not None:
        return scored
    kept = next((use for use in uses if not isinstance(use, ast.Compare)), None)
    if kept is None:
        return None
    names.update(_names_of_decoded_ids(text))
    return (
        None
        if any(_may_be_cut_anywhere(part, names) for part in module.self_and_files_run_together)
        else kept
    )


def searches_in_text(module: Module, text: ast.expr) -> Iterator[ast.Compare]:
    """The searches for words in a text: `"yes" in text.lower()`."""
    for use in _metric_and_keeping_uses_of_text(module, text, set()):
        if isinstance(use, ast.Compare) and isinstance(use.ops[0], ast.In | ast.NotIn):
            yield use


def _names_of_decoded_ids(text: ast.expr) -> Iterator[str]:
    """The names of the ids that are decoded: a slice of them elsewhere may be the answer's part."""
    if isinstance(text, ast.Call):
        for argument in text.args[:1]:
            yield from (part.id for part in ast.walk(argument) if isinstance(part, ast.Name))


def _may_be_cut_anywhere(module: Module, names: set[str]) -> bool:
    """Does anything in the file cut what has one of these names or is kept under one, or is it
    given to a function that may?
    """
    for node in module.nodes(ast.Subscript):
        if isinstance(node.slice, ast.Slice | ast.Tuple) and _stands_for_any_of(node.value, names):
            return True
    return any(_call_may_cut_named_text(module, call, names) for call in module.all_calls)


def _call_may_cut_named_text(module: Module, call: Call, names: set[str]) -> bool:
    """May a call cut what has one of these names: by a method of it, by a pattern, or in a function
    of the files?
    """
    if (
        call.method in CUT_METHODS
        and call.receiver is not None
        and _stands_for_any_of(call.receiver, names)
    ):
        return True
    if not any(_stands_for_any_of(argument, names) for argument in call.args):
        return False
    is_pattern = call.named(*PATTERN_FUNCTIONS) or call.method in ("search", "findall", "sub")
    return is_pattern or module.flow.function_that_expression_names(call.node.func) is not None


def _stands_for_any_of(node: ast.AST, names: set[str]) -> bool:
    """Is it a name or an entry of these names, or a part or form of one?"""
    while isinstance(node, ast.Subscript | ast.Attribute | ast.Call):
        if isinstance(node, ast.Subscript) and getattr(node.slice, "value", None) in names:
            return True
        node = node.func if isinstance(node, ast.Call) else node.value
    return isinstance(node, ast.Name) and node.id in names


def _is_compared_or_given_to_metric(module: Module, use: ast.AST) -> bool:
    """Is the text itself compared with a reference, or given to a metric?"""
    if isinstance(use, ast.Compare):
        return _compares_with_reference(module, use)
    return isinstance(module.scopes.parent.get(use), ast.keyword)


def _compares_with_reference(module: Module, compared: ast.Compare) -> bool:
    """Is it a text that is compared with a reference, or searched for one, and no check for a word
    or a prompt?
    """
    left, right = compared.left, compared.comparators[0]
    if len(compared.ops) != 1 or any(
        module.flow.value(part) is not UNKNOWN for part in (left, right)
    ):
        return False
    is_search = isinstance(compared.ops[0], (ast.In, ast.NotIn))
    references = [left] if is_search else [left, right]
    if any(PROMPT_WORD.search(ast.unparse(part)) for part in references):
        return False
    if any(
        REFERENCE_WORD.search(spelling)
        for part in references
        for spelling in _code_of_names_in(module, part)
    ):
        return True
    return _comparison_is_counted(module, compared)


def _code_of_names_in(module: Module, part: ast.expr) -> Iterator[str]:
    """The code of an expression, and of what the names in it are made of."""
    yield ast.unparse(part)
    for name in ast.walk(part):
        if isinstance(name, ast.Name):
            made = (origin.node for origin in module.flow.origins(name))
            yield from (
                ast.unparse(node)
                for node in made
                if isinstance(node, ast.Subscript | ast.Attribute)
            )


def _comparison_is_counted(module: Module, compared: ast.Compare) -> bool:
    """Does the comparison add to a count: `hits += gold in text`, `if ...: hits += 1`, `sum(gold in
    t for ...)`?
    """
    inner: ast.AST = compared
    for around in module.parents(compared):
        if isinstance(around, ast.AugAssign):
            return isinstance(around.op, ast.Add)
        if isinstance(around, ast.If):
            return inner is around.test and any(
                isinstance(node, ast.AugAssign) for node in around.body
            )
        if isinstance(around, ast.Call) and module.flow.name(around.func) in (
            "sum",
            "numpy.mean",
            "statistics.mean",
        ):
            return True
        if isinstance(around, ast.stmt):
            return False
        inner = around
    return False


def is_scored_by_metric(module: Module, generation: ast.AST) -> bool:
    """Does a metric get the decoded answers of this generation, with their prompts or without?"""
    for call in module.methods("decode", "batch_decode"):
        if not call.args:
            continue
        origins = module.flow.origins(variable_of_indexed_or_attribute(call.args[0]))
        if not any(origin.node is generation for origin in origins):
            continue
        for use in _metric_and_keeping_uses_of_text(module, call.node, set()):
            if isinstance(module.scopes.parent.get(use), ast.keyword) or isinstance(use, ast.Call):
                return True
    return False


def is_whole_output(module: Module, given: ast.expr) -> bool:
    """Is it `out`, `out[0]` or `out.sequences[0]`, and no slice that takes a part of the ids?"""
    while isinstance(given, ast.Subscript | ast.Attribute) and spelling_of_variable(given) is None:
        if isinstance(given, ast.Subscript):
            if not isinstance(module.flow.value(given.slice), int):
                return False
        elif given.attr != "sequences":
            return False
        given = given.value
    is_generation = isinstance(given, ast.Call) and module.flow.call(given).method == "generate"
    return spelling_of_variable(given) is not None or is_generation


def _metric_and_keeping_uses_of_text(
    module: Module, text: ast.expr, names: set[str], steps: int = 0
) -> Iterator[ast.AST]:
    """Places where the text, or a name or list that holds it, is given to a metric or kept as an
    answer.

    `names` is added to: the names and keys that hold it on the way.
    """
    parent = module.scopes.parent.get(text)
    while (
        _is_strip_of_text(parent, text)
        or _is_first_element(parent, module)
        or _is_comprehension_of(parent, text)
    ):
        text, parent = parent, module.scopes.parent.get(parent)
    if isinstance(parent, ast.keyword) and parent.arg in PREDICTION_ARGUMENTS:
        yield text
    elif isinstance(parent, ast.Dict):
        key = _key_of_text_if_it_names_answer(module, parent, text)
        if key is not None:
            names.add(key)
            yield parent
    elif isinstance(parent, ast.Compare):
        yield parent
    elif steps < MAX_STEPS:
        yield from _uses_through_names_and_returns(module, text, parent, names, steps + 1)


def _key_of_text_if_it_names_answer(module: Module, row: ast.Dict, text: ast.expr) -> str | None:
    """The key of a text in a dictionary, where it names an answer: `{"prediction": text}`."""
    for key, value in zip(row.keys, row.values, strict=True):
        if value is text and key is not None:
            name = module.flow.value(key)
            if isinstance(name, str) and ANSWER_NAME.search(name):
                return name
    return None


def _uses_through_names_and_returns(
    module: Module, text: ast.expr, parent: ast.AST | None, names: set[str], steps: int
) -> Iterator[ast.AST]:
    """The uses of names that the text is bound to, of what a function returns it to, and of lists
    that get it.
    """
    for read in _reads_of_elements(module, text):
        names.add(read.id)
        yield from _metric_and_keeping_uses_of_text(module, read, names, steps)
    if isinstance(parent, ast.Call) and text in parent.args:
        yield from _uses_of_appended_list(module, parent, names, steps)
        for read in _reads_of_parameter_given_text(module, parent, text):
            names.add(read.id)
            yield from _metric_and_keeping_uses_of_text(module, read, names, steps)
    elif isinstance(parent, ast.Return):
        for call in module.flow.calls_of_function_or_class(module.scopes.of[parent].node):
            yield from _metric_and_keeping_uses_of_text(module, call, names, steps)
    elif isinstance(parent, ast.AugAssign) and isinstance(parent.target, ast.Name):
        yield from _uses_of_list(module, parent.target, parent, names, steps)
    elif isinstance(parent, ast.Assign):
        for target in parent.targets:
            yield from _uses_of_bound_text(module, target, parent.value, names, steps)


def _reads_of_parameter_given_text(
    module: Module, call: ast.Call, text: ast.expr
) -> Iterator[ast.Name]:
    """The reads, inside of a function of the files, of the parameter that a call gives the text
    for.
    """
    function = module.flow.function_that_expression_names(call.func)
    if not isinstance(function, ast.FunctionDef):
        return
    parameters = [one for one in function.args.args if one.arg not in ("self", "cls")]
    position = call.args.index(text)
    if position >= len(parameters):
        return
    home = module.home(function)
    for read in home.name_reads.get(parameters[position].arg, ()):
        bound = home.scopes.bindings_that_reach(read)
        if len(bound) == 1 and bound[0].node is parameters[position]:
            yield read


def _uses_of_bound_text(
    module: Module, target: ast.expr, value: ast.expr, names: set[str], steps: int
) -> Iterator[ast.AST]:
    """The uses of a text that is bound to a name, or kept under a key: `row["answer"] = text`."""
    if isinstance(target, ast.Subscript):
        key = module.flow.value(target.slice)
        if isinstance(key, str) and ANSWER_NAME.search(key):
            names.add(key)
            yield target
    elif isinstance(target, ast.Name):
        names.add(target.id)
        home = module.home(target)
        for read in _reads_of_name_holding(home, target.id, value):
            yield from _metric_and_keeping_uses_of_text(module, read, names, steps)


def _reads_of_elements(module: Module, texts: ast.expr) -> Iterator[ast.Name]:
    """The names that hold the texts of a list where they are read one by one: `for row, text in
    zip(rows, texts)`.
    """
    iterated, path = _iterated_expression_and_index_path(module, texts)
    loop = module.scopes.parent.get(iterated)
    if not isinstance(loop, ast.For | ast.comprehension) or loop.iter is not iterated:
        return
    targets = (target for target in ast.walk(loop.target) if isinstance(target, ast.Name))
    for target in targets:
        for read in module.name_reads.get(target.id, ()):
            if _is_always_element(module, read, iterated, path):
                yield read


def _iterated_expression_and_index_path(
    module: Module, texts: ast.expr
) -> tuple[ast.expr, tuple[int, ...]]:
    """The expression around a list that is iterated, through `zip`, `enumerate` and the like, with
    the path of indexes that leads from one of its elements to an element of the list.
    """
    path: tuple[int, ...] = ()
    parent = module.scopes.parent.get(texts)
    while isinstance(parent, ast.Call) and texts in parent.args:
        name = module.flow.name(parent.func)
        if name not in ITERATING_CALLS:
            break
        if name == "zip":
            path = (parent.args.index(texts), *path)
        elif name == "enumerate":
            path = (1, *path)
        texts, parent = parent, module.scopes.parent.get(parent)
    return texts, path


def _is_always_element(
    module: Module, read: ast.Name, texts: ast.expr, path: tuple[int, ...]
) -> bool:
    """Is a name, wherever it was bound, this part of an element of the texts?"""
    bindings = module.scopes.bindings_that_reach(read)
    return bool(bindings) and all(
        one.kind == "element" and one.value is texts and one.path == path for one in bindings
    )


def _is_comprehension_of(parent: ast.AST | None, text: ast.AST) -> TypeGuard[ast.expr]:
    """Is it the list that a comprehension makes of such texts?"""
    return isinstance(parent, ast.ListComp) and parent.elt is text


def _is_first_element(parent: ast.AST | None, module: Module) -> TypeGuard[ast.expr]:
    """Is it the first of several texts: `texts[0]`?"""
    return isinstance(parent, ast.Subscript) and bool(module.flow.value(parent.slice) == 0)


def _is_strip_of_text(parent: ast.AST | None, text: ast.AST) -> TypeGuard[ast.expr]:
    """Is it `text.strip`, or the call of that?"""
    return (isinstance(parent, ast.Attribute) and parent.attr in TRIMMING_METHODS) or (
        isinstance(parent, ast.Call) and parent.func is text
    )


def _uses_of_appended_list(
    module: Module, call: ast.Call, names: set[str], steps: int
) -> Iterator[ast.AST]:
    """The uses of a list that a text is appended to: `predictions.append(text)`."""
    method = call.func
    if not (isinstance(method, ast.Attribute) and method.attr in ("append", "extend")):
        return
    if isinstance(method.value, ast.Name):
        yield from _uses_of_list(module, method.value, call, names, steps)


def _uses_of_list(
    module: Module, name: ast.Name, added: ast.AST, names: set[str], steps: int
) -> Iterator[ast.AST]:
    """The uses of a list that texts are added to: given to a metric, or read one by one."""
    names.add(name.id)
    home = module.home(name)
    scope = home.scopes.scope_that_binds_name(name)
    for read in home.name_reads.get(name.id, ()):
        if home.scopes.scope_that_binds_name(read) is not scope:
            continue
        parent = home.scopes.parent.get(read)
        if isinstance(parent, ast.keyword) and parent.arg in ("predictions", "hypotheses"):
            yield added
            return
        for element in _reads_of_elements(home, read):
            names.add(element.id)
            yield from _metric_and_keeping_uses_of_text(module, element, names, steps)


def _reads_of_name_holding(module: Module, name: str, value: ast.expr) -> Iterator[ast.Name]:
    """The reads of a name that holds this value, or a constant on another way."""
    for read in module.name_reads.get(name, ()):
        bound = [binding.value for binding in module.scopes.bindings_that_reach(read)]
        # Another value, as of a branch that cuts the prompt, makes it unknown which one is used.
        if value in bound and all(
            node is value or isinstance(node, ast.Constant) for node in bound
        ):
            yield read
