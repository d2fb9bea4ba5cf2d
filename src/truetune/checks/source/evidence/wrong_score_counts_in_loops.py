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
METRIC_OF_ROWS = re.compile(
    r"^(accuracy|f1|precision|recall|balanced_accuracy|jaccard|bleu|rouge|exact_match|matthews)\w*_(score|corrcoef)$"
)
"""Functions that give one figure for the rows that they are given"""
EVALUATED_LOSS_NAME = re.compile(
    r"(^|_)(val|eval|valid|validation|test|dev)_?(loss|ppl|perplexity)$", re.I
)
DROPPED_BY_FRAME = re.compile(r"\.dropna\(|\.notna\(\)|\.notnull\(\)")
SCORE_OF_FRAME = re.compile(r"\.mean\(\)|accuracy_score|f1_score|len\(|\.sum\(\)\s*/")


class CountOfLastBatch(NamedTuple):
    """A count that a loop over batches assigns and does not add up."""

    name: str
    assigned: ast.Assign
    read: ast.Name
    """Where it is read after the loop"""


class SumOfAllEpochs(NamedTuple):
    """A sum that no epoch begins again, divided by the batches of one epoch."""

    name: str
    added: ast.AugAssign
    quotient: ast.BinOp


class WholeBatchesAlone(NamedTuple):
    """A loop that never reaches the rows which fill no batch, and a figure over all rows."""

    rows: str
    loop: ast.For
    quotient: ast.BinOp


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
                if read is not None and _is_metric_of_one_batch(loop, target.id, part.value):
                    yield CountOfLastBatch(target.id, part, read)


def _is_metric_of_one_batch(loop: Loop, name: str, value: ast.expr) -> bool:
    """Is a value a figure of one batch: its right answers, a metric of its rows, its loss?"""
    if _counts_equal_elements(loop, value):
        return True
    if isinstance(value, ast.Call) and METRIC_OF_ROWS.search(_name_of_called(value)):
        return not any(_is_value_beyond_one_batch(loop, part) for part in value.args)
    is_of_evaluation = EVALUATED_LOSS_NAME.search(name) is not None
    return is_of_evaluation and isinstance(value, ast.Call) and _name_of_called(value) == "item"


def _name_of_called(call: ast.Call) -> str:
    """The last name of what is called."""
    function = call.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _is_value_beyond_one_batch(loop: Loop, value: ast.expr) -> bool:
    """Is a value more than a batch: a name that the loop adds to, or that it does not set?"""
    names = {part.id for part in ast.walk(value) if isinstance(part, ast.Name)}
    assigned: set[str] = set()
    for part in ast.walk(loop):
        counter = counter_raised_by(part) if isinstance(part, ast.stmt) else None
        if counter in names:
            return True
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
            assigned.add(part.id)
    return not names & assigned


def _counts_equal_elements(loop: Loop, value: ast.expr) -> bool:
    """Does a value count the equal elements, or give their share: `(guess == gold).sum().item()`,
    `.float().mean()`, also through a name that the loop sets?
    """
    if not _takes_sum_or_mean(value):
        return False
    names = {part.id for part in ast.walk(value) if isinstance(part, ast.Name)}
    return any(map(_tests_equality, (value, *_values_of_names(loop, names))))


def _takes_sum_or_mean(value: ast.expr) -> bool:
    """Does a value hold a call of the method `sum` or `mean`?"""
    return any(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("sum", "mean")
        for node in ast.walk(value)
    )


def _values_of_names(loop: Loop, names: set[str]) -> list[ast.expr]:
    """The values that a loop gives to one of these names."""
    return [
        part.value
        for part in ast.walk(loop)
        if isinstance(part, ast.Assign) and getattr(part.targets[0], "id", "") in names
    ]


def _tests_equality(value: ast.expr) -> bool:
    """Does a value hold a comparison by `==`?"""
    compares = (node for node in ast.walk(value) if isinstance(node, ast.Compare))
    return any(isinstance(compare.ops[0], ast.Eq) for compare in compares)


def sums_of_all_epochs_over_batches_of_one(module: Module) -> Iterator[SumOfAllEpochs]:
    """The sums that run over all epochs and are divided by the batches of one.

    Args:
        module: A file that is judged.

    Yields:
        Each quotient once.
    """
    for epochs in module.nodes(ast.For):
        for batches in (one for one in epochs.body if isinstance(one, ast.For)):
            for quotient in _quotients_by_batches_of_epoch(epochs, batches):
                assert isinstance(quotient.left, ast.Name)
                name = quotient.left.id
                added = [
                    part
                    for part in ast.walk(batches)
                    if isinstance(part, ast.AugAssign) and getattr(part.target, "id", "") == name
                ]
                if added and not _is_set_in(epochs, name):
                    yield SumOfAllEpochs(name, added[0], quotient)


def loops_over_whole_batches_only(module: Module) -> Iterator[WholeBatchesAlone]:
    """The loops over `len(rows) // size` batches, whose slices never reach the last rows.

    Args:
        module: A file that is judged.

    Yields:
        Each loop once, with a figure that is divided by the number of all rows.
    """
    for loop in module.nodes(ast.For):
        rows = _rows_of_whole_batches(loop)
        if rows is None or not _loop_slices_rows(loop, rows):
            continue
        for part in module.nodes(ast.BinOp):
            is_quotient = isinstance(part.op, ast.Div) and ast.unparse(part.right) == f"len({rows})"
            is_same = module.function_around(part) is module.function_around(loop)
            if is_quotient and is_same and part.lineno > (loop.end_lineno or loop.lineno):
                yield WholeBatchesAlone(rows, loop, part)
                break


def _rows_of_whole_batches(loop: ast.For) -> str | None:
    """The rows in `range(len(rows) // size)`."""
    counted = loop.iter
    while isinstance(counted, ast.Call) and _name_of_called(counted) in ("tqdm", "range", "trange"):
        if not counted.args:
            return None
        counted = counted.args[-1] if len(counted.args) < 3 else counted.args[1]
    if not isinstance(counted, ast.BinOp) or not isinstance(counted.op, ast.FloorDiv):
        return None
    length = counted.left
    is_length = isinstance(length, ast.Call) and _name_of_called(length) == "len"
    return ast.unparse(length.args[0]) if is_length and isinstance(length, ast.Call) else None


def _loop_slices_rows(loop: ast.For, rows: str) -> bool:
    """Does a loop take a slice of the rows?"""
    return any(
        isinstance(part, ast.Subscript)
        and isinstance(part.slice, ast.Slice)
        and ast.unparse(part.value) == rows
        for part in ast.walk(loop)
    )


def _quotients_by_batches_of_epoch(epochs: ast.For, batches: ast.For) -> Iterator[ast.BinOp]:
    """The quotients of a name and the number of batches of an epoch, after its batches."""
    iterated = {ast.unparse(part) for part in ast.walk(batches.iter) if isinstance(part, ast.Name)}
    end = batches.end_lineno or batches.lineno
    for part in ast.walk(epochs):
        if not isinstance(part, ast.BinOp) or not isinstance(part.op, ast.Div):
            continue
        if isinstance(part.left, ast.Name) and part.lineno > end:
            if _text_measured_by_len(part.right) in iterated:
                yield part


def _text_measured_by_len(value: ast.expr) -> str | None:
    """What `len(...)` is given, as text; None for any other value."""
    is_length = isinstance(value, ast.Call) and _name_of_called(value) == "len"
    return ast.unparse(value.args[0]) if isinstance(value, ast.Call) and is_length else None


def _is_set_in(loop: ast.For, name: str) -> bool:
    """Does a loop assign a name, other than by adding to it?"""
    return any(
        isinstance(part, ast.Name) and part.id == name and isinstance(part.ctx, ast.Store)
        for statement in ast.walk(loop)
        if isinstance(statement, ast.Assign | ast.For)
        for target in (
            statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        )
        for part in ast.walk(target)
    )


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
        ANSWER_READER_NAME.search(name)
        for name in _functions_whose_result_name_gets(loop, ast.unparse(value))
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
            columns.update(_columns_stored_by_target(node.targets[0]))
    return columns


def _columns_stored_by_target(target: ast.expr) -> Iterator[str]:
    """The column that a target stores: `parsed` of `df["parsed"]`; none for any other target."""
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


def _functions_whose_result_name_gets(loop: Loop, name: str) -> Iterator[str]:
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
