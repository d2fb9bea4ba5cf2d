"""Finds answers of training rows that a script cleans as for counting words: without stop words,
marks, capitals or endings.

Two halves are put together. `names_of_text_parts_removed` says what a function, or a chain of methods
on a column, takes out of a text. `answer_texts_of_rows` finds the texts that become answers, and
follows each to the function or the column that made it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.source.evidence.row_field_reads import field_name_read
from truetune.data.answering_roles import is_answering_role
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

STEMMERS = ("lemmatize", "stem", "lemma")
STOP_NAMES = re.compile(r"stop_?words|\bstops?\b|is_stop", re.I)
"""Names of lists of frequent words (the, is, not) in scripts, and in NLTK, spaCy, scikit-learn and gensim"""
REMOVERS = ("remove_stopwords", "gensim.parsing.preprocessing.*", "texthero.clean*")
MARKS_TAKEN = re.compile(r"\[\^[^\]]{1,40}\]|\[[^\]]*(?:[!?.,;:]|\\W)[^\]]*\]")
"""A class of characters that a pattern takes out: all but letters, or marks"""
KEPT_MARKS = re.compile(r"\[\^[^\]]*[.,!?][^\]]*\]|\\x00|\\u[0-9a-f]{4}|\\n", re.I)
"""A class that leaves the marks of sentences in, or takes out control characters alone"""
SUBSTITUTES = ("re.sub", "regex.sub")
COLUMN_METHODS = ("apply", "map", "progress_apply", "swifter.apply")
ANSWER_KEYS = ("output", "completion", "response", "chosen", "target_text", "assistant")
"""Keys of rows for training whose text is learned; `answer` may be a reference of an evaluation"""
MAX_DEPTH = 3
"""Functions that call one another. Chosen, not measured"""


class DestroyedAnswer(NamedTuple):
    """An answer that is cleaned before it is learned."""

    answer: ast.AST
    place: ast.AST
    """Where the cleaning is applied"""
    steps: tuple[str, ...]
    """What is taken out: `stop words`"""


def answers_cleaned_before_training(module: Module) -> Iterator[DestroyedAnswer]:
    """The answers of a script's rows that are cleaned so."""
    for answer in answer_texts_of_rows(module):
        for place in _possible_cleanings(module, answer):
            steps = tuple(sorted(set(names_of_text_parts_removed(module, place))))
            if steps:
                yield DestroyedAnswer(answer, place, steps)
                break


def answer_texts_of_rows(module: Module) -> Iterator[ast.expr]:
    """The expressions whose texts become answers in rows: of a turn of the assistant, or under the
    key of an answer.
    """
    for node in module.nodes(ast.Dict):
        entries = {
            key.value: value
            for key, value in zip(node.keys, node.values, strict=True)
            if isinstance(key, ast.Constant) and isinstance(key.value, str)
        }
        role = entries.get("role", entries.get("from"))
        content = entries.get("content", entries.get("value"))
        if content is not None and isinstance(role, ast.Constant):
            if is_answering_role(role.value):
                yield content
            continue
        yield from (entries[key] for key in ANSWER_KEYS if key in entries)


def _possible_cleanings(module: Module, answer: ast.expr) -> Iterator[ast.expr]:
    """The expressions that may have cleaned an answer: its own calls, and what its column was given
    before.
    """
    yield answer
    for origin in module.flow.origins(answer):
        if isinstance(origin.node, ast.expr) and not origin.element and origin.node is not answer:
            yield origin.node
    column = _column_read(answer)
    if column is None:
        return
    for assign in module.nodes(ast.Assign):
        target = assign.targets[0]
        # `df["reply"] = df["reply"].apply(clean)`, and `row["reply"] = clean(row["reply"])`.
        if field_name_read(target) == column:
            yield assign.value


def _column_read(node: ast.expr) -> str | None:
    """The column that is read: the key of `row["reply"]`, `row.get("reply")`, `row.reply`, also
    with methods called on it, such as `.strip()`; None otherwise.
    """
    field = field_name_read(node)
    while field is None and isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        # The name of a field that `get` is given may be computed.
        if node.func.attr == "get":
            return None
        node = node.func.value
        field = field_name_read(node)
    return node.attr if field is None and isinstance(node, ast.Attribute) else field


def names_of_text_parts_removed(module: Module, node: ast.AST, depth: int = 0) -> Iterator[str]:
    """What an expression, and the functions that it calls, take out of a text."""
    if depth > MAX_DEPTH:
        return
    for inner in ast.walk(node):
        if isinstance(inner, ast.Call):
            yield from _text_parts_removed_by_call(module, module.flow.call(inner))
            yield from _text_parts_removed_by_functions_run(module, inner, depth)
        elif isinstance(inner, ast.Attribute) and inner.attr == "lemma_":
            yield "endings of words"
        elif _drops_stop_words(module, inner):
            yield "stop words"


def _text_parts_removed_by_functions_run(
    module: Module, call: ast.Call, depth: int
) -> Iterator[str]:
    """What the functions of the file take out that a call makes run: itself, or those that `apply`
    is given.
    """
    names: list[ast.expr] = [call.func]
    if isinstance(call.func, ast.Attribute) and call.func.attr in COLUMN_METHODS:
        names += call.args[:1]
    for name in names:
        if not isinstance(name, (ast.Name, ast.Lambda)):
            continue
        for origin in module.flow.origins(name):
            if isinstance(origin.node, (ast.FunctionDef, ast.Lambda)):
                yield from names_of_text_parts_removed(module, origin.node, depth + 1)


def _drops_stop_words(module: Module, node: ast.AST) -> bool:
    """Does a test leave out stop words: `w not in STOP`, `not token.is_stop`?"""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return isinstance(node.operand, ast.Attribute) and node.operand.attr == "is_stop"
    if not isinstance(node, ast.Compare) or not isinstance(node.ops[0], ast.NotIn):
        return False
    words = node.comparators[0]
    return STOP_NAMES.search(ast.unparse(words)) is not None and not _is_written_list_without_words(
        module, words
    )


def _is_written_list_without_words(module: Module, words: ast.expr) -> bool:
    """Is it a list that the file spells, and is none of its texts a word: `["</s>", "<|im_end|>"]`?"""
    texts = module.flow.value(words)
    if not isinstance(texts, list | tuple | set | frozenset) or not texts:
        return False
    return not any(isinstance(text, str) and text.isalpha() for text in texts)


def _text_parts_removed_by_call(module: Module, call: Call) -> Iterator[str]:
    """What one call takes out of a text."""
    if call.named(*REMOVERS):
        yield "stop words"
    if call.method in STEMMERS:
        yield "endings of words"
    if call.method in ("lower", "casefold") and not call.args:
        yield "capitals"
    if call.method == "translate" and "punctuation" in ast.unparse(call.node):
        yield "punctuation"
    pattern = _pattern_replaced_by_blank(module, call)
    if pattern is not None:
        yield from _text_parts_removed_by_pattern(pattern)


def _pattern_replaced_by_blank(module: Module, call: Call) -> str | None:
    """The pattern of a call that replaces what it matches by nothing or by blanks; None where it
    does not, or is not written out.
    """
    is_column = call.method == "replace" and module.flow.value(call.keywords.get("regex")) is True
    if not (is_column or call.named(*SUBSTITUTES)) or len(call.args) < 2:
        return None
    pattern, replacement = (module.flow.value(one) for one in call.args[:2])
    if not isinstance(pattern, str) or not isinstance(replacement, str) or replacement.strip():
        return None
    return pattern


def _text_parts_removed_by_pattern(pattern: str) -> Iterator[str]:
    """What a pattern takes out: marks, and digits where only letters are left."""
    if not MARKS_TAKEN.search(pattern) or KEPT_MARKS.search(pattern):
        return
    yield "punctuation"
    if re.search(r"\[\^(?:a-z|A-Z|a-zA-Z|A-Za-z)(?:\\s| )*\]", pattern):
        yield "digits"
