"""Computes how many rows or batches a value has at most, by the symbolic run of a script.

How it works: from a data set or loader back to a list that is written, or to a file beside the
script, whose rows are counted. What leaves rows out only makes fewer of them.

The trade-off: a step that may make several rows of one (a batched `map`, two appends in a pass,
`cycle`) ends the way back, and nothing is known then.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from truetune.checks.config.evidence.upper_bound_of_optimizer_steps import count_rows
from truetune.checks.source.evidence.files_where_each_row_makes_one_example_at_most import (
    OF_FILES,
    OF_ROWS,
    READERS,
)
from truetune.source.symbolic_execution.element_of_iterable import (
    KEEPS_ROWS,
    LOADERS,
    PASSES_ON,
    PREPARING_METHODS,
)
from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.trace_of_events import CallEvent
from truetune.source.symbolic_execution.values_of_run import (
    Choice,
    Element,
    Instance,
    Item,
    Mapping,
    Option,
    Result,
    Sequence,
    Slice,
    Value,
    parts_of_value,
)

ADDS_ROWS = ("itertools.cycle", "itertools.chain.from_iterable")
PARSERS = ("json.load", "json.loads", "csv.DictReader", "csv.reader", "pathlib.Path", "len")
READING_METHODS = ("read", "readlines", "splitlines", "read_text", "open", "strip", "split")
GIVES_ROWS_ON = (
    *OF_ROWS,
    *PARSERS,
    *PASSES_ON,
    "datasets.Dataset.from_dict",
    "torch.utils.data.Subset",
)
"""Functions whose result has at most the rows of their first argument"""
SAMPLERS = ("*.RandomSampler", "*.SequentialSampler", "*.DistributedSampler")
"""Samplers that give each row at most once"""
MAX_DEPTH = 24
"""Steps between a loop and a file"""
MAX_PARTS = 400
"""Values that one row is made of, which are looked at"""


class UpperCount(NamedTuple):
    """A number of rows or batches, at most."""

    most: int
    why: str
    """`rows.jsonl holds 40 rows, in batches of 4`"""


def batches_at_most(value: Value | None, depth: int = 0) -> UpperCount | None:
    """The passes of a loop over a loader, a list or a range, at most; None where they are not
    known.
    """
    if value is None or depth > MAX_DEPTH:
        return None
    if isinstance(value, Item):
        return batches_at_most(_object_at_index_of_prepare_result(value), depth + 1)
    if isinstance(value, Result):
        return _batches_of_call_at_most(value.call, depth)
    return rows_at_most(value, depth + 1)


def _batches_of_call_at_most(call: CallEvent, depth: int) -> UpperCount | None:
    """The passes of a loop over what a call gives."""
    if call.named("range"):
        return _passes_of_range(call, depth)
    if call.named(*LOADERS):
        return _batches_of_loader(call, depth)
    if call.method == "iter":
        return _batches_of_rows(call.receiver, call.argument(0, "batch_size"), depth)
    is_passed = call.named("enumerate", *PASSES_ON) and not call.named(*ADDS_ROWS)
    if is_passed or (call.method in PREPARING_METHODS and len(call.args) == 1):
        return batches_at_most(call.args[0], depth + 1) if call.args else None
    return rows_at_most(call.result, depth + 1)


def _object_at_index_of_prepare_result(item: Item) -> Value | None:
    """What stands at one place of `accelerator.prepare(model, loader)`; None where it is no such
    result.
    """
    position = constant_of(item.key)
    if not isinstance(item.base, Result) or type(position) is not int:
        return None
    call = item.base.call
    is_there = call.method in PREPARING_METHODS and 0 <= position < len(call.args)
    return call.args[position] if is_there else None


def _passes_of_range(call: CallEvent, depth: int) -> UpperCount | None:
    """The passes of a range: `range(3)`, or `range(0, len(rows), 4)`; None where they are not
    known.
    """
    if len(call.args) == 3:
        return _batches_of_rows(call.args[1], call.args[2], depth)
    number = constant_of(call.args[0]) if len(call.args) == 1 else None
    if type(number) is int and number >= 0:
        return UpperCount(number, f"{number:,}")
    return rows_at_most(call.args[0], depth + 1) if len(call.args) == 1 else None


def _batches_of_loader(call: CallEvent, depth: int) -> UpperCount | None:
    """The batches of a loader; None where a sampler may repeat rows."""
    sampler = call.argument(3, "sampler")
    is_plain = isinstance(sampler, Result) and sampler.call.named(*SAMPLERS)
    if call.is_open or call.argument(4, "batch_sampler") is not None:
        return None
    if sampler is not None and constant_of(sampler) is not None and not is_plain:
        return None
    size = call.argument(1, "batch_size")
    if size is None:
        return rows_at_most(call.argument(0, "dataset"), depth + 1)
    return _batches_of_rows(call.argument(0, "dataset"), size, depth)


def _batches_of_rows(rows: Value | None, size: Value | None, depth: int) -> UpperCount | None:
    """Rows in batches of this size."""
    count, each = rows_at_most(rows, depth + 1), constant_of(size)
    if count is None or type(each) is not int or each < 1:
        return None
    return UpperCount(math.ceil(count.most / each), f"{count.why}, in batches of {each:,}")


def rows_at_most(value: Value | None, depth: int = 0) -> UpperCount | None:
    """The rows of a value, at most; None where they are not known."""
    if value is None or depth > MAX_DEPTH:
        return None
    if isinstance(value, Choice):
        return _largest_count([rows_at_most(option, depth + 1) for option in value.options])
    if isinstance(value, Option | Instance):
        inner = value.default if isinstance(value, Option) else _value_counted_by_len_method(value)
        return rows_at_most(inner, depth + 1)
    if isinstance(value, Sequence):
        return _rows_of_list_at_most(value, depth)
    if isinstance(value, Item):
        return _rows_of_item_at_most(value, depth)
    return _rows_of_call_at_most(value.call, depth) if isinstance(value, Result) else None


def _largest_count(counts: list[UpperCount | None]) -> UpperCount | None:
    """The largest count; None where one is not known."""
    known = [count for count in counts if count is not None]
    return max(known, default=None) if len(known) == len(counts) else None


def _rows_of_list_at_most(rows: Sequence, depth: int) -> UpperCount | None:
    """The items of a list: those that are written, or one for each element of what a loop passes
    through.
    """
    if not rows.is_open:
        return UpperCount(len(rows.items), f"{len(rows.items):,} rows")
    passed = {id(one): one for item in rows.items for one in _iterables_of_elements(item)}
    if not _has_one_append_per_pass(rows) or len(passed) != 1:
        return None
    return rows_at_most(next(iter(passed.values())), depth + 1)


def _has_one_append_per_pass(rows: Sequence) -> bool:
    """Does each pass add one row? A loop is run twice, so one `append` leaves two items, made at
    one place.
    """
    places = {id(item.node) for item in rows.items}
    objects = {id(item) for item in rows.items}
    return len(places) == 1 and len(objects) == len(rows.items) <= 2


def _iterables_of_elements(item: Value) -> Iterator[Value]:
    """What a row was taken from: the iterables of the elements that it is made of."""
    pending = [item]
    seen: set[int] = set()
    while pending and len(seen) < MAX_PARTS:
        value = pending.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, Element):
            yield value.iterable
        else:
            pending.extend(parts_of_value(value))


def _value_counted_by_len_method(instance: Instance) -> Value | None:
    """What `__len__` of a data set of the project counts: `len(self.rows)`."""
    length = instance.made_of.namespace.get("__len__")
    definition = getattr(length, "definition", None)
    body = definition.body if isinstance(definition, ast.FunctionDef) else []
    returned = body[-1].value if body and isinstance(body[-1], ast.Return) else None
    if not isinstance(returned, ast.Call) or ast.unparse(returned.func) != "len":
        return None
    counted = returned.args[0] if returned.args else None
    name = counted.attr if isinstance(counted, ast.Attribute) else ""
    return instance.attributes.get(name)


def _rows_of_item_at_most(item: Item, depth: int) -> UpperCount | None:
    """The rows of a slice, or of one split."""
    whole = rows_at_most(item.base, depth + 1)
    key = item.key
    if isinstance(key, Slice):
        stop = constant_of(key.stop)
        is_limit = type(stop) is int and stop >= 0
        return _limited_count(whole, stop if is_limit else None)
    return whole if isinstance(constant_of(key), str) else None


def _limited_count(count: UpperCount | None, limit: int | None) -> UpperCount | None:
    """The count, made smaller by a limit if there is one."""
    if limit is None or (count is not None and count.most <= limit):
        return count
    return UpperCount(limit, f"{limit:,} rows are taken")


def _rows_of_call_at_most(call: CallEvent, depth: int) -> UpperCount | None:
    """The rows that a call gives, at most."""
    if call.named(*ADDS_ROWS) or call.method == "repeat":
        return None
    if call.named("datasets.load_dataset"):
        return _rows_of_load_dataset(call)
    if call.named(*OF_FILES):
        return _rows_of_local_file(call, call.args[0] if call.args else None)
    if call.named(*GIVES_ROWS_ON) and call.args:
        given = call.args[0]
        return _rows_of_local_file(call, given) or rows_at_most(
            _column_of_from_dict(given), depth + 1
        )
    return _rows_of_method_at_most(call, depth)


def _column_of_from_dict(given: Value) -> Value:
    """One column of the data of `from_dict({"text": [...]})`; anything else as it is."""
    is_table = isinstance(given, Mapping) and given.entries
    return next(iter(given.entries.values())) if is_table and isinstance(given, Mapping) else given


def _rows_of_method_at_most(call: CallEvent, depth: int) -> UpperCount | None:
    """The rows that a method of a data set or a file gives, at most."""
    if call.method == "map" and constant_of(call.argument(-1, "batched")) is True:
        return None
    if call.method in ("select", "take", "head"):
        return _limited_count(rows_at_most(call.receiver, depth + 1), _rows_kept_by_call(call))
    if call.method in (*KEEPS_ROWS, *READING_METHODS, "map"):
        return rows_at_most(call.receiver, depth + 1)
    return None


def _rows_kept_by_call(call: CallEvent) -> int | None:
    """The number of rows that a call leaves: `select(range(64))`, `take(64)`; None for others."""
    given = call.argument(0, "indices" if call.method == "select" else "n")
    if isinstance(given, Result) and given.call.named("range") and len(given.call.args) == 1:
        given = given.call.args[0]
    number = constant_of(given)
    return number if type(number) is int and number >= 0 else None


def _rows_of_load_dataset(call: CallEvent) -> UpperCount | None:
    """The rows of the one local file that `load_dataset` reads."""
    files = call.argument(-1, "data_files")
    if isinstance(files, Mapping):
        files = files.entries.get("train")
    if files is None or constant_of(call.argument(0, "path")) not in READERS:
        return None
    return _rows_of_local_file(call, files)


def _rows_of_local_file(call: CallEvent, name: Value | None) -> UpperCount | None:
    """The rows of a file beside the script, or in the folder that the command is started in."""
    text = constant_of(name)
    if not isinstance(text, str) or not text or "\0" in text:
        return None
    for path in (Path(call.home.path).parent / text, Path(text)):
        try:
            count = count_rows(str(path)) if path.is_file() else None
        except OSError:
            return None
        if count is not None:
            return UpperCount(count, f"{path.name} holds {count:,} rows")
    return None
