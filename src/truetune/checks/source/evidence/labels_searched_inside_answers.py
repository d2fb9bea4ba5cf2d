"""Finds labels that a script looks for as parts of answers, where only the names in the script say
what a label and an answer is.

How it works: a script that scores a file of predictions never asks a model, so that nothing proves
what an answer is but its name (`prediction`, `reply`). The labels are the references of rows that
are known, a list of the file, or the texts of a chain of tests. The trade-off: an answer that is
called `x` is missed; what the symbolic run proves stands in `wrong_label_matches`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from truetune.checks.source.evidence.is_answer_compared_with_reference import REFERENCE
from truetune.checks.source.evidence.row_field_reads import field_name_read
from truetune.checks.source.evidence.scored_rows import rows_with_text_columns
from truetune.checks.source.evidence.wrong_label_matches import WrongMatch
from truetune.source.parsed_source_file import Module

# Names are all that tells an answer from any other text: one that is called `x` is missed.
ANSWER_NAME = re.compile(
    r"pred|answer|output|generat|respon|repl|completion|decoded|hyp|text|said|result|content", re.I
)
"""Names of what a model wrote"""
PLAIN_TEXT_NAME = re.compile(r"^\W*(?:text|content|line|log|stdout|stderr|result)s?\b", re.I)
"""Names of texts that may be anything: single words that are looked for in them need not be labels"""
LABEL = re.compile(r"[^\W\d_][\w -]+")
OPTION_LETTER = re.compile(r"[A-J]")
FIRST_LETTER = re.compile(r"\b65\b|ord\('A'\)")
ONE_TOKEN_ANSWERS = re.compile(r"max_(?:new_)?tokens[\"']?\s*[=:]\s*[1-5]\b")
"""Answers that are a letter and little more"""
COLLECTING = frozenset(("set", "frozenset", "list", "tuple", "sorted"))
PART_METHODS = frozenset(("group", "groups", "split", "partition", "findall", "pop"))
MAX_LABELS = 20
"""Different texts of a column up to which they are labels"""
MAX_LABEL_CHARACTERS = 40
"""Characters of a label. Chosen by hand: a label is a word or a few; a column with a longer text holds
answers, and nothing is said of it
"""
WORD_LISTS = frozenset(("split", "findall", "tokenize", "word_tokenize", "keys", "values", "get"))
"""Methods that make a list of a text, or give what is none"""
COLLECTIONS = (ast.List, ast.Tuple, ast.Set, ast.Dict, ast.ListComp, ast.SetComp)
TEXT_METHODS = frozenset(("strip", "lstrip", "rstrip", "lower", "casefold", "upper"))
MARK_METHODS = frozenset(
    ("replace", "sub", "translate", "removeprefix", "removesuffix", "join", "split")
)
"""What a function that makes texts comparable calls besides"""


class LabelSearch(NamedTuple):
    """One search for labels inside of an answer, `label in answer`, with the labels in the order in
    which they are searched for.
    """

    compare: ast.Compare
    labels: tuple[str, ...]
    source: str
    """Where they stand, for a reader"""
    is_ordered: bool
    """The first that is found is taken"""


def label_searches_in_answers(module: Module) -> Iterator[LabelSearch]:
    """The places of a file that search for a label inside of an answer."""
    chains = _labels_tested_in_chains(module)
    for compare in module.nodes(ast.Compare):
        if len(compare.ops) != 1 or not isinstance(compare.ops[0], ast.In):
            continue
        label, answer = compare.left, compare.comparators[0]
        if not _is_answer_text(module, answer):
            continue
        text = module.flow.value(label)
        if isinstance(text, str):
            if compare in chains and not PLAIN_TEXT_NAME.search(ast.unparse(answer)):
                yield LabelSearch(compare, chains[compare], "this file", is_ordered=True)
            continue
        searched = _searched_labels_place_and_first_taken(module, label)
        if searched is not None:
            labels, source, is_ordered = searched
            yield LabelSearch(compare, labels, source, is_ordered)


def find_label_inside_another(module: Module) -> WrongMatch | None:
    """The first search for a label inside of an answer that is true of another label too; None
    where there is none.
    """
    for search in label_searches_in_answers(module):
        inside = _label_inside_longer_label(search)
        if inside is None:
            continue
        one, other = inside
        return WrongMatch(
            search.compare,
            f"`{module.text_of(search.compare)}` is also true for answers with another label: {one!r} is part of"
            f" {other!r} ({search.source}), so the answer {other!r} counts as {one!r}",
            'compare whole words: re.search(rf"\\b{re.escape(label)}\\b", answer), or use only the first label in the'
            " answer; and report the recall of each label",
        )
    return None


def find_letter_inside_answers(module: Module) -> WrongMatch | None:
    """The first search for the letter of an option anywhere in an answer; None where there is none."""
    if ONE_TOKEN_ANSWERS.search(module.text):
        return None
    for compare in module.nodes(ast.Compare):
        if len(compare.ops) != 1 or not isinstance(compare.ops[0], ast.In):
            continue
        label, answer = compare.left, compare.comparators[0]
        if _is_whole_answer(module, answer) and _is_option_letter(module, label):
            return WrongMatch(
                compare,
                f"`{module.text_of(compare)}` is true for any answer that contains this letter: A is in Answer and"
                " According, B in But and Because, C in Correct",
                r"extract the letter after a fixed phrase: re.search(r'\b(?:answer is|Answer:)\s*\(?([A-D])\b',"
                " answer), and compare it with the label by ==",
            )
    return None


def _is_whole_answer(module: Module, node: ast.expr) -> bool:
    """Is it the text of a model, and no word or letter that was taken out of it?"""
    if not _is_answer_text(module, node):
        return False
    sources = [node, *(origin.node for origin in module.flow.origins(node))]
    return not any(_takes_character_or_group(one) for one in sources)


def _takes_character_or_group(node: ast.AST) -> bool:
    """Does an expression take a letter or a group out of a text: `text[0]`, `text[:1]`,
    `match.group(1)`?
    """
    if isinstance(node, ast.Subscript):
        key = node.slice
        # `choice["text"]` is the whole text of a field.
        return not (isinstance(key, ast.Constant) and isinstance(key.value, str))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        # `set(re.findall(...))`, the letters of an answer.
        return node.func.id in COLLECTING
    called = node.func if isinstance(node, ast.Call) else None
    return isinstance(called, ast.Attribute) and called.attr in PART_METHODS


def _is_option_letter(module: Module, label: ast.expr) -> bool:
    """Is it certainly one capital letter: `"ABCD"[i]`, `chr(65 + i)`, or one of such a list?"""
    inner = _without_strip_and_case_calls(module, label)
    column = _column_read(module, inner)
    rows = None if column is None else rows_with_text_columns(module, (column,))
    if column is not None and rows is not None:
        values = {row[column].strip() for row in rows.rows}
        if len(values) > 1 and all(map(OPTION_LETTER.fullmatch, values)):
            return True
    origins = module.flow.origins(inner)
    return bool(origins) and all(
        _gives_one_of_first_letters(module, origin.node) for origin in origins
    )


def _gives_one_of_first_letters(module: Module, node: ast.AST) -> bool:
    """Does an expression give one of the first letters?"""
    if isinstance(node, ast.Subscript) and not isinstance(node.slice, ast.Slice):
        letters = module.flow.value(node.value)
    elif isinstance(node, ast.Call):
        return module.flow.name(node.func) == "chr" and bool(FIRST_LETTER.search(ast.unparse(node)))
    else:
        letters = None
    if not isinstance(letters, str | list | tuple) or len(letters) < 2:
        return False
    return all(isinstance(one, str) and OPTION_LETTER.fullmatch(one) for one in letters)


def _label_inside_longer_label(search: LabelSearch) -> tuple[str, str] | None:
    """(label, longer label): the first that is a part of another one, unless that was asked before."""
    for at, one in enumerate(search.labels):
        others = search.labels[at + 1 :] if search.is_ordered else search.labels
        for other in others:
            if one != other and one in other:
                return one, other
    return None


def _is_answer_text(module: Module, node: ast.expr) -> bool:
    """Is it a text that a model wrote, and no list of words or labels?"""
    if isinstance(module.flow.value(node), list | tuple | set | frozenset | dict):
        return False
    for origin in (node, *(origin.node for origin in module.flow.origins(node))):
        if isinstance(origin, COLLECTIONS):
            return False
        if isinstance(origin, ast.Call) and (module.flow.call(origin).method or "") in WORD_LISTS:
            return False
    column = _column_read(module, _without_strip_and_case_calls(module, node)) or ""
    return bool(ANSWER_NAME.search(f"{ast.unparse(node)} {column}"))


def _searched_labels_place_and_first_taken(
    module: Module, label: ast.expr
) -> tuple[tuple[str, ...], str, bool] | None:
    """(labels, where they stand, is the first taken) of what is looked for; None where they are not
    known.
    """
    inner = _without_strip_and_case_calls(module, label)
    listed = _listed_labels(module, inner)
    if listed is not None:
        return listed, "this file", True
    column = _column_read(module, inner)
    if column is None or not REFERENCE.search(f"{ast.unparse(inner)} {column}"):
        return None
    rows = rows_with_text_columns(module, (column,))
    if rows is None:
        return None
    labels = sorted({row[column].strip().casefold() for row in rows.rows} - {""})
    if not 2 <= len(labels) <= MAX_LABELS or len(rows.rows) < 2 * len(labels):
        return None
    if any(len(one) > MAX_LABEL_CHARACTERS for one in labels):
        return None
    return tuple(labels), f"`{column}` of {rows.source}", False


def _without_strip_and_case_calls(module: Module, node: ast.expr) -> ast.expr:
    """The expression without the methods and functions that only strip or fold its text.

    `gold` of `gold.strip().lower()`, `str(gold)`, and of `norm(gold)` where the file's own function
    does no more.
    """
    while isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute) and node.func.attr in TEXT_METHODS:
            node = node.func.value
        elif (
            isinstance(node.func, ast.Name)
            and node.args
            and _function_only_normalizes_text(module, node.func.id)
        ):
            node = node.args[0]
        else:
            break
    return node


def _function_only_normalizes_text(module: Module, name: str) -> bool:
    """Is it `str`, or a function of the file that only strips its text, folds its case and replaces
    marks?
    """
    if name == "str":
        return True
    functions = [one for one in module.nodes(ast.FunctionDef) if one.name == name]
    if len(functions) != 1 or not functions[0].args.args:
        return False
    parts = list(ast.walk(functions[0]))
    gives_back = any(isinstance(part, ast.Return) and part.value is not None for part in parts)
    calls = (part for part in parts if isinstance(part, ast.Call))
    return gives_back and all(map(_call_only_normalizes_text, calls))


def _call_only_normalizes_text(call: ast.Call) -> bool:
    """Does a call only strip a text, fold its case or replace marks?"""
    if isinstance(call.func, ast.Attribute):
        return call.func.attr in TEXT_METHODS or call.func.attr in MARK_METHODS
    return isinstance(call.func, ast.Name) and call.func.id == "str"


def _listed_labels(module: Module, node: ast.expr) -> tuple[str, ...] | None:
    """The texts that a loop or a comprehension takes one by one from a list of the file."""
    if not isinstance(node, ast.Name):
        return None
    for loop in _for_loops_and_comprehensions(module):
        target = loop.target
        is_inside = isinstance(target, ast.Name) and target.id == node.id
        if not is_inside or not _loop_holds(module, loop, node):
            continue
        if not _found_label_is_used(module, loop, node):
            return None
        labels = _casefolded_texts_if_several(module.flow.value(loop.iter))
        if labels is not None:
            return labels
    return None


def _casefolded_texts_if_several(values: object) -> tuple[str, ...] | None:
    """The texts of a list of two or more, without case; None where it holds anything else."""
    if not isinstance(values, list | tuple) or len(values) < 2:
        return None
    texts = tuple(value.casefold() for value in values if isinstance(value, str))
    return texts if len(texts) == len(values) else None


def _found_label_is_used(module: Module, loop: ast.AST, name: ast.Name) -> bool:
    """Does a loop say which label was found? `any(phrase in text for phrase in phrases)` does not
    ask.
    """
    holder = next(module.parents(loop)) if isinstance(loop, ast.comprehension) else loop
    return any(
        isinstance(part, ast.Name)
        and part.id == name.id
        and isinstance(part.ctx, ast.Load)
        and part is not name
        for part in ast.walk(holder)
    )


def _for_loops_and_comprehensions(module: Module) -> Iterator[ast.For | ast.comprehension]:
    """The `for` loops of a file, and the loops inside of its comprehensions."""
    yield from module.nodes(ast.For)
    yield from module.nodes(ast.comprehension)


def _loop_holds(module: Module, loop: ast.AST, node: ast.AST) -> bool:
    """Does a loop, or the comprehension that it belongs to, hold a node?"""
    holder = next(module.parents(loop)) if isinstance(loop, ast.comprehension) else loop
    return any(part is node for part in ast.walk(holder))


def _column_read(module: Module, node: ast.expr) -> str | None:
    """The column that a value is read from: `row["label"]`, or a name that was given it."""
    columns = (
        field_name_read(_without_strip_and_case_calls(module, one))
        for one in _expression_and_sources(module, node)
    )
    return next((column for column in columns if column is not None), None)


def _expression_and_sources(module: Module, node: ast.expr) -> Iterator[ast.expr]:
    """The expression itself, and the expressions that its value was taken from, the nearest first."""
    name = node if isinstance(node, ast.Name) else None
    zipped = _zipped_iterable_of(module, name) if name is not None else None
    yield zipped or node
    # A value that a function of the file gives back is followed into it, where the column is no longer named.
    assigned = _assigned_value(module, name) if name is not None else None
    if assigned is not None:
        yield assigned
    for origin in module.flow.origins(zipped or node):
        if isinstance(origin.node, ast.expr):
            yield origin.node


def _assigned_value(module: Module, name: ast.Name) -> ast.expr | None:
    """What a name is given in its function, where that is one assignment."""
    around = module.scopes.of[name]
    values = [
        node.value
        for node in module.nodes(ast.Assign)
        if len(node.targets) == 1
        and isinstance(node.targets[0], ast.Name)
        and node.targets[0].id == name.id
        and module.scopes.of[node.targets[0]] is around
    ]
    return values[0] if len(values) == 1 else None


def _zipped_iterable_of(module: Module, name: ast.Name) -> ast.expr | None:
    """What a name of `for gold, answer in zip(golds, answers)` is taken from."""
    for loop in _for_loops_and_comprehensions(module):
        target, rows = loop.target, loop.iter
        if not isinstance(target, ast.Tuple) or not isinstance(rows, ast.Call):
            continue
        names = [one.id if isinstance(one, ast.Name) else "" for one in target.elts]
        is_zip = ast.unparse(rows.func) == "zip" and len(rows.args) == len(names)
        if is_zip and name.id in names and _loop_holds(module, loop, name):
            return rows.args[names.index(name.id)]
    return None


def _labels_tested_in_chains(module: Module) -> dict[ast.Compare, tuple[str, ...]]:
    """The texts that a chain of tests looks for, by each of its comparisons.

    `if "a" in text: ... elif "b" in text: ...`, and such ifs one after the other that return.
    """
    chains: dict[ast.Compare, tuple[str, ...]] = {}
    for chain in _if_chains(module):
        texts = list(_label_tests_of_chain(module, chain))
        if len({ast.unparse(test.comparators[0]) for test, _ in texts}) == 1:
            for at, (test, _) in enumerate(texts):
                following = tuple(text for _, text in texts[at:])
                # An if stands in the chain of its elifs, and in that of its function.
                if len(following) > len(chains.get(test, ())):
                    chains[test] = following
    return chains


def _label_tests_of_chain(
    module: Module, chain: Sequence[ast.If]
) -> Iterator[tuple[ast.Compare, str]]:
    """The tests `"a" in text` of a chain, each with its text, where that may be a label."""
    for one in chain:
        test = one.test
        if not isinstance(test, ast.Compare) or not isinstance(test.ops[0], ast.In):
            continue
        text = module.flow.value(test.left)
        if isinstance(text, str) and LABEL.fullmatch(text):
            yield test, text.casefold()


def _if_chains(module: Module) -> Iterator[Sequence[ast.If]]:
    """Ifs of which the first that holds is taken."""
    for first in module.nodes(ast.If):
        chain = [first]
        while len(chain[-1].orelse) == 1 and isinstance(chain[-1].orelse[0], ast.If):
            chain.append(chain[-1].orelse[0])
        yield chain
    for function in module.nodes(ast.FunctionDef):
        ifs = [one for one in function.body if isinstance(one, ast.If)]
        if len(ifs) > 1 and all(isinstance(one.body[-1], ast.Return) for one in ifs):
            yield ifs
