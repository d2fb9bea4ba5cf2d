"""Finds rows that a script puts in several times, or makes others of, before it divides them for
the training.

How it works: in the symbolic run, the rows that are divided (`train_test_split`, `random_split`,
`rows[:n]` and `rows[n:]`, the folds of sklearn) are followed back to where they are read. On the
way stand draws with replacement (`random.choices`, `sample(replace=True)`, `resample`), the
samplers of imblearn, a list times a number, a data set that is joined twice, and rows that are made
of others by a call (a translation there and back) and joined with them.

The trade-off: only steps that give rows again are followed, so that a template which is drawn for
each row is no draw of rows. Where copies are taken out again, before the division or after it,
nothing is said.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.source.evidence.shared_rows_of_data_sets import call_repeating_rows
from truetune.checks.source.evidence.unshuffled_splits_of_sorted_rows import (
    second_slices_with_bound,
)
from truetune.source.parsed_source_file import Module
from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.run_scripts_and_keep_traces import (
    traces_of_scripts_that_reach_file,
)
from truetune.source.symbolic_execution.trace_of_events import CallEvent, Trace
from truetune.source.symbolic_execution.values_of_run import (
    Attribute,
    Choice,
    Constant,
    Element,
    Item,
    Mapping,
    Operation,
    Option,
    Result,
    Sequence,
    Slice,
    Value,
    parts_of_value,
)

MAX_VALUES = 1_500
"""Values that one division is followed back through. Chosen, not measured: scripts that prepare rows have hundreds"""
READERS = (
    "open", "json.load*", "csv.*reader", "csv.DictReader", "pandas.read_*", "datasets.load_*",
    "datasets.Dataset.from_*", "polars.read_*", "polars.scan_*", "jsonlines.open", "pickle.load",
    "sqlite3.connect", "srsly.read_*",
)  # fmt: skip
READING_METHODS = ("open", "read_text", "read_bytes", "readlines")
SPLITTERS = (
    "sklearn.model_selection.train_test_split",
    "torch.utils.data.random_split",
    "torch.utils.data.dataset.random_split",
)
FOLDS = ("sklearn.model_selection.*Fold", "sklearn.model_selection.*ShuffleSplit")
GROUPED = ("sklearn.model_selection.*Group*",)
"""Folds that keep the rows of a group, and so the copies of a row, on one side"""
FUNCTIONS_OF_ROWS = (
    "list", "tuple", "sorted", "reversed", "random.sample", "pandas.concat", "pandas.DataFrame", "polars.concat",
    "datasets.concatenate_datasets", "datasets.Dataset.from_*", "itertools.chain*", "copy.*copy", "numpy.array",
    "numpy.concatenate", "sklearn.utils.shuffle", "numpy.random.permutation", "enumerate", "tqdm.*",
)  # fmt: skip
METHODS_OF_ROWS = frozenset(
    (
        "map", "apply", "assign", "astype", "copy", "fillna", "filter", "flatten_indices", "groupby", "items",
        "iterrows", "itertuples", "query", "dropna", "remove_columns", "rename", "rename_column", "rename_columns",
        "reset_index", "sample", "select", "take", "select_columns", "shuffle", "sort", "sort_values", "to_dict",
        "to_list", "to_pandas", "tolist", "values", "with_format", "explode", "get_group", "droplevel", "add_column",
        "class_encode_column", "cast_column", "from_list", "from_pandas", "split", "splitlines",
    )
)  # fmt: skip
DRAWS = ("random.choices",)
RESAMPLERS = ("sklearn.utils.resample",)
OVERSAMPLERS = ("imblearn.over_sampling.*", "imblearn.combine.*")
NUMPY_DRAWS = ("numpy.random.choice",)
NUMPY_GENERATORS = (
    "numpy.random.default_rng",
    "numpy.random.RandomState",
    "numpy.random.Generator",
)
"""Objects whose `choice` draws as that of the module does"""
TEXT_METHODS = frozenset(
    (
        "strip",
        "lstrip",
        "rstrip",
        "lower",
        "upper",
        "title",
        "replace",
        "split",
        "join",
        "format",
        "get",
        "items",
    )
)
"""Methods of texts and rows, which say the same in another form"""


class RepeatedRows(NamedTuple):
    """A division of rows that were put in several times."""

    division: ast.AST
    repeat: ast.AST
    what: str
    """What repeats them, for a sentence"""


class _Division(NamedTuple):
    """Rows, and what divides them."""

    node: ast.AST
    rows: tuple[Value, ...]


def divisions_of_repeated_rows(module: Module) -> Iterator[RepeatedRows]:
    """The divisions of a script whose rows are repeated before, each once."""
    seen: set[ast.AST] = set()
    for trace in filter(_reads_rows, traces_of_scripts_that_reach_file(module)):
        for division in (*_divisions_by_calls(trace, module), *_divisions_by_slices(trace, module)):
            if division.node in seen or removes_shared_rows_after_division(module, division.node):
                continue
            found = next(
                (
                    one
                    for rows in division.rows
                    for one in _repetition_places_and_kinds_before(rows)
                ),
                None,
            )
            if found is not None:
                seen.add(division.node)
                yield RepeatedRows(division.node, *found)


def _divisions_by_calls(trace: Trace, module: Module) -> Iterator[_Division]:
    """The divisions of rows by a function or a method."""
    for call in trace.all_calls:
        rows = _rows_divided_by(call)
        if rows and call.home.path == module.path and not call.is_in_later_loop_pass:
            yield _Division(call.node, rows)


def _rows_divided_by(call: CallEvent) -> tuple[Value, ...]:
    """The rows that a call divides; none of a call that divides nothing."""
    if call.named(*SPLITTERS):
        return call.args
    if call.method == "split" and _is_sklearn_row_splitter(call.receiver):
        return call.args[:1]
    if call.receiver is None:
        return ()
    divides = call.method == "train_test_split" or (
        call.method == "drop" and _drops_drawn_sample(call, call.receiver)
    )
    return (call.receiver,) if divides else ()


def _is_sklearn_row_splitter(value: Value | None) -> bool:
    """Is it an object of sklearn that divides rows one by one?"""
    if not isinstance(value, Result):
        return False
    return value.call.named(*FOLDS) and not value.call.named(*GROUPED)


def _drops_drawn_sample(call: CallEvent, frame: Value) -> bool:
    """Does a call drop the rows that were drawn from the same frame: `frame.drop(part.index)`?"""
    index_argument = call.argument(0, "index") or call.keywords.get("labels")
    if not isinstance(index_argument, Attribute) or index_argument.name != "index":
        return False
    part = index_argument.base
    return isinstance(part, Result) and part.call.method == "sample" and part.call.receiver is frame


def _divisions_by_slices(trace: Trace, module: Module) -> Iterator[_Division]:
    """The divisions of rows by two slices: `rows[:n]` and `rows[n:]`."""
    for tail, _ in second_slices_with_bound(trace):
        node = tail.key.node
        if node is not None and module.holds(node):
            yield _Division(node, (tail.base,))


def removes_shared_rows_after_division(module: Module, division: ast.AST) -> bool:
    """Are rows of one side left out after a division where the other side holds them?"""
    line = getattr(division, "lineno", 0)
    return any(
        node.lineno >= line and any(isinstance(one, ast.NotIn) for one in node.ops)
        for node in module.nodes(ast.Compare)
    ) or any(
        call.node.lineno >= line
        for call in module.methods("isin", "drop_duplicates", "difference", "difference_update")
    )


def _reads_rows(trace: Trace) -> bool:
    """Does a run read rows from somewhere?"""
    return any(call.named(*READERS) or call.method in READING_METHODS for call in trace.all_calls)


def _is_list_of_constants(value: Value) -> bool:
    """Is it a list of constants, such as templates or names?"""
    if not isinstance(value, Sequence) or value.is_open:
        return False
    return all(isinstance(one, Constant) for one in value.items)


def _repetition_places_and_kinds_before(value: Value) -> Iterator[tuple[ast.AST, str]]:
    """(place, what) of the steps before rows that put some of them in several times."""
    pending, seen = [value], set[int]()
    while pending and len(seen) < MAX_VALUES:
        one = pending.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        found = _repetition_place_and_kind(one)
        if found is not None and found[0] is not None:
            yield found[0], found[1]
        pending.extend(_sources_of_rows(one))


def _repetition_place_and_kind(value: Value) -> tuple[ast.AST | None, str] | None:
    """(place, what) where a value holds rows several times; None where it does not."""
    if isinstance(value, Result):
        what = _repetition_by_call(value.call)
        return None if what is None else (value.call.node, what)
    product = _repeated_list_cut_to_size(value) or value
    if isinstance(product, Operation):
        is_repeated = product is not value or _is_multiplied_list(product)
        return (product.node, "a list is taken several times") if is_repeated else None
    if isinstance(value, Sequence):
        made = _row_derived_from_another(value)
        return None if made is None else (made.node, "rows are made of others and added to them")
    return None


def _repeated_list_cut_to_size(value: Value) -> Operation | None:
    """The product in `(rows * times)[:size]`: a list, since it is cut, that is repeated up to a
    size.
    """
    if not isinstance(value, Item) or not isinstance(value.key, Slice):
        return None
    product = value.base
    if not isinstance(product, Operation) or product.operator != "*" or value.key.start is not None:
        return None
    # `(matrix * scale)[:n]` is no list that is repeated: the number of times is a whole one, by its own code.
    is_counted = any(map(_is_computed_as_integer, product.operands))
    return product if is_counted and any(map(_may_be_list_of_rows, product.operands)) else None


def _is_computed_as_integer(value: Value) -> bool:
    """Is a number computed as a whole one: `size // len(rows) + 1`, `math.ceil(...)`?"""
    if isinstance(value, Result):
        return value.call.named("int", "len", "math.ceil", "math.floor", "round")
    if not isinstance(value, Operation):
        return False
    return value.operator == "//" or any(map(_is_computed_as_integer, value.operands))


def _may_be_list_of_rows(value: Value) -> bool:
    """May it be the rows of a group: a list, or one of several?"""
    return isinstance(value, Sequence | Element | Item) and not _is_list_of_constants(value)


def _is_multiplied_list(product: Operation) -> bool:
    """Is it a list of rows times a number above one?"""
    counts = [constant_of(one) for one in product.operands if isinstance(one, Constant | Option)]
    lists = [one for one in product.operands if isinstance(one, Sequence | Item | Result)]
    if product.operator != "*" or all(map(_is_list_of_constants, lists)):
        return False
    if any(type(count) is int and count > 1 for count in counts):
        return True
    # `[row] * shares[row["label"]]`: a number that is computed, or read from a table, is not one for all rows.
    return not counts and any(map(_is_written_list_of_rows, lists))


def _is_written_list_of_rows(value: Value) -> bool:
    """Is it a list that is written out and holds rows: `[row]`?"""
    if not isinstance(value, Sequence):
        return False
    return any(isinstance(one, Element | Mapping) for one in value.items)


def _repetition_by_call(call: CallEvent) -> str | None:
    """What repeats rows in what a call gives; None where nothing does."""
    if any(map(_is_list_of_constants, call.args[:1])):
        return None
    drawn = _replacement_draw_of_call(call)
    if drawn is not None:
        return drawn
    if call.method == "fit_resample" and isinstance(call.receiver, Result):
        if call.receiver.call.named(*OVERSAMPLERS):
            sampler = call.receiver.call.names[0].rpartition(".")[2]
            return f"{sampler} adds rows that it copies, or makes of their neighbours"
        return None
    if call.named("datasets.interleave_datasets"):
        strategy = constant_of(call.keywords.get("stopping_strategy"))
        return (
            "interleave_datasets repeats the smaller sets" if strategy == "all_exhausted" else None
        )
    if call.method == "repeat" and isinstance(call.receiver, Attribute | Result):
        return "repeat puts rows in several times"
    return "rows are joined with themselves" if call_repeating_rows(call.result) is call else None


def _replacement_draw_of_call(call: CallEvent) -> str | None:
    """The draw with replacement that a call makes; None where it makes none."""
    if call.named(*DRAWS):
        return "random.choices draws rows with replacement"
    if call.method == "sample" and constant_of(call.keywords.get("replace")) is True:
        return "sample(replace=True) draws rows with replacement"
    # sklearn's default is with replacement.
    replaces = call.lacks("replace", 1) or constant_of(call.argument(1, "replace")) is True
    if call.named(*RESAMPLERS) and replaces:
        return "resample draws rows with replacement"
    return (
        "numpy.random.choice draws with replacement"
        if _is_numpy_draw_with_replacement(call)
        else None
    )


def _is_numpy_draw_with_replacement(call: CallEvent) -> bool:
    """Does numpy draw several with replacement, which is its default?"""
    maker = call.receiver.call if isinstance(call.receiver, Result) else None
    of_generator = call.method == "choice" and maker is not None and maker.named(*NUMPY_GENERATORS)
    if not of_generator and not call.named(*NUMPY_DRAWS):
        return False
    replaces = call.lacks("replace", 2) or constant_of(call.argument(2, "replace")) is True
    return replaces and call.argument(1, "size") is not None


def _row_derived_from_another(rows: Sequence) -> Value | None:
    """A row of a list that a call makes of another row of the list: a translation there and back, a
    paraphrase.
    """
    for row in rows.items:
        origins = _ids_of_inputs_to_called_texts(row)
        if any(id(one) in origins for one in rows.items if one is not row):
            return row
    return None


def _ids_of_inputs_to_called_texts(row: Value) -> set[int]:
    """The identities of what the texts of a row are made of, where a call makes them: no `strip`,
    no `replace`.
    """
    given = row.entries if isinstance(row, Mapping | Result) else {}
    entries = [one.base if isinstance(one, Item) else one for one in given.values()]
    pending: list[Value] = [
        one for one in entries if isinstance(one, Result) and one.call.method not in TEXT_METHODS
    ]
    seen: set[int] = set()
    while pending and len(seen) < MAX_VALUES:
        one = pending.pop()
        if id(one) not in seen:
            seen.add(id(one))
            pending.extend(parts_of_value(one))
    return seen


def _sources_of_rows(value: Value) -> Iterator[Value]:
    """What the rows of a value come from, by steps that give rows again."""
    if isinstance(value, Choice):
        yield from value.options
    elif isinstance(value, Sequence):
        yield from _sources_of_list_rows(value)
    elif isinstance(value, Operation):
        yield from value.operands if value.operator == "+" else ()
    elif isinstance(value, Item):
        if isinstance(value.key, Slice | Constant | Operation | Sequence):
            yield value.base
        if isinstance(value.base, Attribute):
            yield value.key
    elif isinstance(value, Attribute):
        yield from (value.base,) if value.name in ("loc", "iloc", "values") else ()
    elif isinstance(value, Element):
        yield value.iterable
    elif isinstance(value, Result):
        yield from _sources_of_call_rows(value.call)


def _sources_of_list_rows(rows: Sequence) -> Iterator[Value]:
    """What the rows of a list come from: of a comprehension, what it goes over; of other lists,
    their elements.
    """
    if rows.made_over is not None:
        yield rows.made_over
    for item in rows.items:
        if isinstance(item, Element):
            yield item.iterable
        elif isinstance(item, Result | Item | Attribute | Operation | Choice):
            yield item
        elif isinstance(item, Mapping):
            yield from (one.iterable for one in _list_elements_composing_row(item))


def _list_elements_composing_row(row: Mapping) -> Iterator[Element]:
    """The elements of other lists that a row is made of directly: `{"text": r["text"]}`, `{**r}`."""
    parts = [*row.entries.values(), *(() if row.rest is None else (row.rest,))]
    for part in parts:
        base = part.base if isinstance(part, Item) else part
        if isinstance(base, Element):
            yield base


def _sources_of_call_rows(call: CallEvent) -> Iterator[Value]:
    """What the rows that a call gives come from."""
    if call.named(*FUNCTIONS_OF_ROWS):
        yield from call.args[:1] if not call.named("itertools.chain*") else call.args
    elif call.method == "fit_resample" or call.named(*RESAMPLERS, *DRAWS):
        yield from call.args[:1]
    elif call.method in METHODS_OF_ROWS and call.receiver is not None:
        yield call.receiver
        yield from (given for _, given in call.returned_by_callbacks)
        # The numbers of rows that are taken: one that stands there twice takes its row twice.
        yield from call.args[:1] if call.method in ("select", "take") else ()
