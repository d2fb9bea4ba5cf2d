"""Finds counts for a score that a loop keeps wrongly: overwritten by each batch, or leaving out
skipped rows.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from truetune.source.parsed_source_file import Module

Loop = ast.For | ast.AsyncFor
LOADER_NAME = re.compile(r"loader|dataloader|_dl\b|batches", re.I)
"""Names of what gives batches"""
ANSWER_READER_NAME = re.compile(
    r"extract|parse|search|match|find|loads|read_answer|get_answer|to_number", re.I
)
"""Names of functions that read an answer out of a text, and give None where there is none"""
CASTING_READERS = frozenset(("float", "int", "Decimal", "ast.literal_eval", "literal_eval", "eval"))
"""Functions of Python that read an answer, and raise where there is none"""
ANSWER_VALUE_NAME = re.compile(
    r"pred|answer|output|response|generat|completion|hyp|reply|model_|\bans\b|\bout\b|decoded|said",
    re.I,
)
"""What a script calls what the model wrote"""
REFERENCE_NAME = re.compile(r"gold|refer|label|target|truth|expected", re.I)
"""What it calls the right answer: one that can't be read is a fault of the data"""
SCORE_LIST_NAME = re.compile(
    r"score|correct|hit|acc|right|\bok|match|\bem|f1|pred|gold|ref|true|result|err|diff|rouge|bleu",
    re.I,
)
"""What a script calls a list that its score is the mean of"""
MEAN_NAME = re.compile(
    r"(?:^|[._])(?:f?mean|average|accuracy_score|f1_score|exact_match|accuracy)$"
)
FRAME_READER = re.compile(
    r"\.(?:apply|map|progress_apply)\(\s*(?:lambda|\w*(?:extract|parse|loads|read|to_num|safe|json)\w*)"
    r"|to_numeric\(.*coerce|\.str\.extract\(",
    re.I | re.S,
)
"""What reads each answer of a table's column, and gives nothing where there is none"""
DROPPED_BY_FRAME = re.compile(r"\.dropna\(|\.notna\(\)|\.notnull\(\)")
SCORE_OF_FRAME = re.compile(r"\.mean\(\)|accuracy_score|f1_score|len\(|\.sum\(\)\s*/")


class CountOfLastBatch(NamedTuple):
    """A count that a loop over batches assigns and does not add up."""

    name: str
    assigned: ast.Assign
    read: ast.Name
    """Where it is read after the loop"""


class SkippedRows(NamedTuple):
    """Rows that a script leaves out before it counts them."""

    counter: str
    skip: ast.stmt
    counting: ast.stmt


def equality_counts_of_last_batch(module: Module) -> Iterator[CountOfLastBatch]:
    """Right answers of a batch that are assigned in a loop, never read in it, and read after it."""
    for loop in module.nodes(ast.For):
        if not LOADER_NAME.search(ast.unparse(loop.iter)):
            continue
        for part in ast.walk(loop):
            target = part.targets[0] if isinstance(part, ast.Assign) else None
            if isinstance(part, ast.Assign) and isinstance(target, ast.Name):
                read = _read_after_loop(module, loop, target.id)
                if read is not None and _counts_equal_elements(part.value):
                    yield CountOfLastBatch(target.id, part, read)


def _counts_equal_elements(value: ast.expr) -> bool:
    """Does a value count the equal elements, or give their share: `(guess == gold).sum().item()`,
    `.float().mean()`?
    """
    calls = [node for node in ast.walk(value) if isinstance(node, ast.Call)]
    sums = any(
        isinstance(one.func, ast.Attribute) and one.func.attr in ("sum", "mean") for one in calls
    )
    compares = (node for node in ast.walk(value) if isinstance(node, ast.Compare))
    return sums and any(isinstance(one.ops[0], ast.Eq) for one in compares)


def _read_after_loop(module: Module, loop: Loop, name: str) -> ast.Name | None:
    """The read, after a loop and in its function, of a name that the loop does not read; None where
    there is none, or the name is assigned again before.
    """
    inside = set(ast.walk(loop))
    around = module.scopes.of[loop]
    uses = [
        node
        for node in module.nodes(ast.Name)
        if node.id == name and module.scopes.of[node] is around
    ]
    if any(node in inside and isinstance(node.ctx, ast.Load) for node in uses):
        return None
    end = loop.end_lineno or loop.lineno
    first = min((one for one in uses if one.lineno > end), key=lambda one: one.lineno, default=None)
    return first if first is not None and isinstance(first.ctx, ast.Load) else None


def uncounted_skipped_rows(module: Module) -> Iterator[SkippedRows]:
    """Loops that leave out the rows of which no answer is read, and count only the others; each
    counter once.
    """
    for loop in module.nodes(ast.For):
        known: set[str] = set()
        for skipped in _uncounted_rows_of_loop(module, loop):
            if skipped.counter not in known:
                known.add(skipped.counter)
                yield skipped
    yield from _uncounted_rows_of_tables(module)


def _uncounted_rows_of_loop(module: Module, loop: Loop) -> Iterator[SkippedRows]:
    """The counts of one loop that stand after a `continue`, in a `try`, or under `if answer is not
    None`.
    """
    skip: ast.stmt | None = None
    for statement in loop.body:
        if _skips_unread_answers(loop, statement):
            skip = statement
            continue
        inside = _row_counts_only_where_parsed(loop, statement)
        counted = [(statement, one) for one in inside]
        if skip is not None:
            counted += [(skip, statement)]
        for cause, counting in counted:
            name = counter_raised_by(counting)
            is_alone = name is not None and not _is_counted_elsewhere(loop, counting, name)
            if name is not None and is_alone and is_divisor_of_score(module, loop, name):
                yield SkippedRows(name, cause, counting)


def counter_raised_by(statement: ast.stmt) -> str | None:
    """The counter or list that a statement adds a row to: `total += 1`, `right.append(...)`; None
    for others.
    """
    if isinstance(statement, ast.AugAssign) and _increments_by_one(statement):
        return ast.unparse(statement.target)
    call = statement.value if isinstance(statement, ast.Expr) else None
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
        name = ast.unparse(call.func.value)
        if call.func.attr == "append" and SCORE_LIST_NAME.search(name):
            return name
    return None


def _is_counted_elsewhere(loop: Loop, counting: ast.stmt, name: str) -> bool:
    """Does the loop count the row in another place too, such as a wrong one in the `except`?"""
    return any(
        isinstance(node, ast.stmt) and node is not counting and counter_raised_by(node) == name
        for node in ast.walk(loop)
    )


def _skips_unread_answers(loop: Loop, statement: ast.stmt) -> bool:
    """Is it `if value is None: continue`, of a value that a function read out of an answer, or a
    `try` around that?
    """
    if isinstance(statement, ast.Try):
        return _parses_model_text(statement.body) and any(
            isinstance(handler.body[-1], ast.Continue) and _only_prints_and_continues(handler.body)
            for handler in statement.handlers
        )
    if (
        not isinstance(statement, ast.If)
        or statement.orelse
        or not _only_prints_and_continues(statement.body)
    ):
        return False
    value = _value_tested_missing(statement.test)
    if value is None or not isinstance(statement.body[-1], ast.Continue):
        return False
    return _is_read_from_answer(loop, value)


def _is_read_from_answer(loop: Loop, value: ast.expr) -> bool:
    """Is a value what a function read out of an answer?"""
    if isinstance(value, ast.Call):
        return ANSWER_READER_NAME.search(ast.unparse(value.func)) is not None
    return any(
        ANSWER_READER_NAME.search(name) for name in _functions_assigned(loop, ast.unparse(value))
    )


def _only_prints_and_continues(body: list[ast.stmt]) -> bool:
    """Does a block only print, pass and continue?

    One that counts what it leaves out is not silent.
    """
    return all(
        isinstance(statement, ast.Continue | ast.Pass)
        or (isinstance(statement, ast.Expr) and "print" in ast.unparse(statement)[:6])
        or (isinstance(statement, ast.Expr) and ast.unparse(statement).startswith(("log", "warn")))
        for statement in body
    )


def _parses_model_text(body: list[ast.stmt]) -> bool:
    """Does a block parse what a model wrote, and not only a line of the file?"""
    for call in (node for part in body for node in ast.walk(part) if isinstance(node, ast.Call)):
        reader = ast.unparse(call.func)
        is_reader = ANSWER_READER_NAME.search(reader) or reader in CASTING_READERS
        texts = [ast.unparse(one) for one in call.args]
        if is_reader and any(
            ANSWER_VALUE_NAME.search(text) and not REFERENCE_NAME.search(text) for text in texts
        ):
            return True
    return False


def _row_counts_only_where_parsed(loop: Loop, statement: ast.stmt) -> list[ast.stmt]:
    """The counts inside `try: parse; total += 1; except: pass`, or inside `if answer is not None:`
    without an else.
    """
    if isinstance(statement, ast.Try):
        is_left_out = _parses_model_text(statement.body) and any(
            _only_prints_and_continues(handler.body) for handler in statement.handlers
        )
        return [*statement.body, *statement.orelse] if is_left_out else []
    if isinstance(statement, ast.If) and not statement.orelse:
        value = _value_tested_present(statement.test)
        if value is not None and _is_read_from_answer(loop, value):
            return list(statement.body)
    return []


def _value_tested_present(test: ast.expr) -> ast.expr | None:
    """The value that a test takes to be there: `value` of `value` and of `value is not None`; None
    for any other test.
    """
    if isinstance(test, ast.Name):
        return test
    if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.IsNot):
        return test.left
    return None


def _uncounted_rows_of_tables(module: Module) -> Iterator[SkippedRows]:
    """Rows of a table that `dropna` or `notna` leaves out before a mean, by a column that was read
    out of answers.
    """
    read = _columns_read_from_answers(module)
    if not read:
        return
    for statement in module.nodes(ast.Assign):
        text = ast.unparse(statement.value)
        names_columns = "subset" in text or ".notna" in text
        if DROPPED_BY_FRAME.search(text) is None:
            continue
        if names_columns and not _text_names_column(text, read):
            continue
        name = ast.unparse(statement.targets[0])
        mean = _first_score_of_table_after(module, statement, name)
        if mean is not None:
            yield SkippedRows(name, statement, mean)


def _columns_read_from_answers(module: Module) -> set[str]:
    """The columns of a table that are set to what a function reads out of answers."""
    columns: set[str] = set()
    for node in module.nodes(ast.Assign):
        value = ast.unparse(node.value)
        if FRAME_READER.search(value) and ANSWER_VALUE_NAME.search(value):
            columns.update(_column_keys(node.targets[0]))
    return columns


def _column_keys(target: ast.expr) -> Iterator[str]:
    """The columns that a target stores: `parsed` of `df["parsed"]` and of `df.parsed`."""
    if isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant):
        yield str(target.slice.value)


def _text_names_column(text: str, keys: set[str]) -> bool:
    """Is one of these columns named in a text of code?"""
    return any(f"'{key}'" in text or f".{key}" in text for key in keys)


def _first_score_of_table_after(module: Module, statement: ast.stmt, name: str) -> ast.stmt | None:
    """The first statement after it that makes a mean, or a score, of the table."""
    end = statement.end_lineno or statement.lineno
    pattern = re.compile(rf"\b{re.escape(name)}\b")
    for node in module.order:
        if not isinstance(node, ast.Assign | ast.Expr | ast.Return) or node.lineno <= end:
            continue
        text = ast.unparse(node)
        if pattern.search(text) and SCORE_OF_FRAME.search(text):
            return node
    return None


def _value_tested_missing(test: ast.expr) -> ast.expr | None:
    """The value that a test takes to be missing: `value` of `not value` and of `value is None`;
    None for any other test.
    """
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return test.operand
    if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Is):
        return test.left
    return None


def _functions_assigned(loop: Loop, name: str) -> Iterator[str]:
    """The functions whose results get a name in a loop, as they are written."""
    for node in ast.walk(loop):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            if ast.unparse(node.targets[0]) == name:
                yield ast.unparse(node.value.func)


def _increments_by_one(statement: ast.stmt) -> bool:
    """Does a statement raise a number by one: `total += 1`?"""
    return (
        isinstance(statement, ast.AugAssign)
        and isinstance(statement.op, ast.Add)
        and isinstance(statement.value, ast.Constant)
        and statement.value.value == 1
    )


def is_divisor_of_score(module: Module, loop: Loop, name: str) -> bool:
    """Is a score divided by this count after the loop?

    A precision is over what was said, and a share `total / len(rows)` tells what was left out.
    """
    end = loop.end_lineno or loop.lineno
    quotients = [node for node in _divisions(module) if node.lineno > end]
    if any(_is_count_or_length(node.left, name) for node in quotients):
        return False
    dividing = [node for node in quotients if name in _names_in_divisor(node.right)]
    if dividing:
        return not any(is_precision(module, node) for node in dividing)
    return any(_is_mean_of(node, name) for node in module.nodes(ast.Call) if node.lineno > end)


def _divisions(module: Module) -> Iterator[ast.BinOp]:
    """The divisions of a file."""
    return (node for node in module.nodes(ast.BinOp) if isinstance(node.op, ast.Div))


def _is_mean_of(call: ast.Call, name: str) -> bool:
    """Does a function make a mean of a list: `np.mean(scores)`?"""
    is_mean = MEAN_NAME.search(ast.unparse(call.func)) is not None
    return is_mean and any(ast.unparse(argument) == name for argument in call.args)


def _is_count_or_length(expression: ast.expr, name: str) -> bool:
    """Is it the count itself, or the length of the list: `total`, `len(scores)`?"""
    return ast.unparse(expression) in (name, f"len({name})")


def is_precision(module: Module, quotient: ast.AST) -> bool:
    """Is a quotient or mean called a precision where it is computed or printed?"""
    statement = module.statement(quotient)
    return statement is not None and "prec" in ast.unparse(statement).lower()


def _names_in_divisor(node: ast.expr) -> list[str]:
    """The names in a divisor: `max(total, 1)` has `total`."""
    return [part.id for part in ast.walk(node) if isinstance(part, ast.Name)]
