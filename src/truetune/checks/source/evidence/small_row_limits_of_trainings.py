"""Finds what cuts the rows that reach a training down to a small constant number, by the symbolic
run of the script.

How it works: from the data set of a trainer, or the loader of a loop that calls `backward`, back
through everything that keeps rows, to `select(range(N))`, `take(N)`, `rows[:N]` or
`split="train[:N]"`.

The trade-off: all ways back must be cut by plain constants. A cut behind an option, or in a branch
that is not decided, is a switch for trying things, and is no evidence.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from truetune.source.find_command_line_option_values import is_option_omitted_by_every_command
from truetune.source.parsed_source_file import Module
from truetune.source.symbolic_execution.element_of_iterable import KEEPS_ROWS, LOADERS, PASSES_ON
from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.run_scripts_and_keep_traces import (
    traces_of_scripts_that_reach_file,
)
from truetune.source.symbolic_execution.trace_of_events import (
    CallEvent,
    Event,
    Frame,
    NameEvent,
    Trace,
)
from truetune.source.symbolic_execution.values_of_run import (
    NO_CONSTANT,
    Attribute,
    Choice,
    Element,
    Item,
    Option,
    Result,
    Slice,
    Value,
)

MAX_ROWS = 200
"""Public scripts take 1,000 rows or more to be quick (Unsloth's notebooks 1,000 to 3,000), and below 200 for tests"""
MAX_STREAMED_ROWS = 500
"""Nobody streams a set of so few rows; public scripts take 2,000 and more of a stream"""
MAX_LIGHTNING_STEPS = 200
"""Batches of all epochs together. A limit of batches with many epochs only says how often to evaluate"""
MAX_DEPTH = 24
"""Calls between a data set and its trainer: about six"""
TRAINERS = ("transformers.*Trainer", "trl.*Trainer")
LIGHTNING = (
    "lightning.Trainer",
    "lightning.pytorch.Trainer",
    "pytorch_lightning.Trainer",
)
TABLE_METHODS = frozenset(
    (
        "dropna",
        "fillna",
        "reset_index",
        "rename",
        "drop_duplicates",
        "copy",
        "astype",
        "sort_values",
    )
)
"""Methods of pandas whose result has rows of the table itself"""
TABLE_READERS = ("pandas.read_*",)
FROM_TABLES = ("datasets.Dataset.from_pandas", "datasets.Dataset.from_list")
SAVES = ("save_pretrained", "save_model", "push_to_hub", "save_pretrained_merged", "save_lora")
SPLIT_OF_ROWS = re.compile(r"\w+\[:(?P<rows>\d+)\]")


class RowLimit(NamedTuple):
    """What leaves few rows."""

    node: ast.AST
    what: str
    """`100 rows`, `20 batches an epoch`"""
    cut: str
    """What leaves them, as the script writes it"""


def small_row_limits_of_saved_trainings(module: Module) -> Iterator[RowLimit]:
    """The places of a file that leave few rows to a training whose model is saved, each once."""
    seen: set[ast.AST] = set()
    for trace in traces_of_scripts_that_reach_file(module):
        for event_home, limit in _row_limits_of_run(trace):
            if event_home.path == module.path and limit.node not in seen:
                seen.add(limit.node)
                yield limit


def _row_limits_of_run(trace: Trace) -> Iterator[tuple[Module, RowLimit]]:
    """The limits of one run, each with its file."""
    for training, data in trainings_with_data(trace):
        is_saved = any(save.number > training.number for save in trace.methods(*SAVES))
        if not is_saved or any(training.frames("branch")):
            continue
        for value in data:
            found = _row_limit_on_way_to_source(value, 0) or _cut_by_option_default(
                value, training.home
            )
            if found is None:
                continue
            cut, limit = found
            event = (
                cut
                if isinstance(cut, CallEvent)
                else _naming_event_or_training_call(trace, cut, training)
            )
            if not any(map(_may_be_skipped_despite_limit, event.frames("branch", "comprehension"))):
                yield event.home, limit
    yield from _limits_of_lightning_trainers_with_saved_model(trace)


def _may_be_skipped_despite_limit(frame: Frame) -> bool:
    """May what stands here not run? `if args.limit:` runs where its limit is what the cut takes."""
    return not (frame.kind == "branch" and frame.taken and isinstance(frame.value, Option))


def _cut_by_option_default(data: Value, home: Module) -> tuple[CallEvent, RowLimit] | None:
    """The cut of `if args.limit: rows = rows.select(range(args.limit))`, where commands leave the
    option out.
    """
    ways = data.options if isinstance(data, Choice) else (data,)
    for way in ways:
        call = way.call if isinstance(way, Result) else None
        option = _row_number_option(call) if call is not None else None
        rows = None if option is None else constant_of(option.default)
        if call is None or option is None or type(rows) is not int or not 1 < rows <= MAX_ROWS:
            continue
        if is_option_omitted_by_every_command(home.path, option.name):
            return call, RowLimit(
                call.node, f"{rows:,} rows (the default of --{option.name})", f"{call.method}(...)"
            )
    return None


def _row_number_option(call: CallEvent) -> Option | None:
    """The option of the command line that says how many rows a call leaves."""
    given = _row_number_argument(call)
    return given if isinstance(given, Option) else None


def _row_number_argument(call: CallEvent) -> Value | None:
    """What says how many rows `select(range(n))`, `head(n)`, `sample(n=n)` or `read_csv(...,
    nrows=n)` leaves.
    """
    if call.method == "select":
        chosen = call.argument(0, "indices")
        is_range = isinstance(chosen, Result) and chosen.call.named("range")
        if not isinstance(chosen, Result) or not is_range or len(chosen.call.args) != 1:
            return None
        return _count_inside_min_of_length(chosen.call.args[0])
    if call.named(*TABLE_READERS):
        return call.keywords.get("nrows")
    if call.method in ("head", "sample") and call.receiver is not None:
        of_groups = isinstance(call.receiver, Result) and call.receiver.call.method == "groupby"
        return None if of_groups else call.argument(0, "n")
    return None


def _count_inside_min_of_length(value: Value) -> Value:
    """The count in `min(n, len(rows))`; any other value as it is."""
    is_least = isinstance(value, Result) and value.call.named("min") and len(value.call.args) == 2
    if not isinstance(value, Result) or not is_least:
        return value
    counts = [
        one for one in value.call.args if not (isinstance(one, Result) and one.call.named("len"))
    ]
    return counts[0] if len(counts) == 1 else value


def _limits_of_lightning_trainers_with_saved_model(
    trace: Trace,
) -> Iterator[tuple[Module, RowLimit]]:
    """The limits of Lightning trainers whose model is saved."""
    for trainer in trace.calls(*LIGHTNING):
        batches = _lightning_limit_to_few_steps(trainer)
        is_saved = any(save.number > trainer.number for save in trace.methods(*SAVES))
        if batches is not None and is_saved and not any(trainer.frames("branch")):
            yield trainer.home, RowLimit(trainer.node, batches, "limit_train_batches")


def trainings_with_data(trace: Trace) -> Iterator[tuple[CallEvent, tuple[Value, ...]]]:
    """The trainings of a run, each with the data that it takes."""
    for trainer in trace.calls(*TRAINERS):
        rows = trainer.keywords.get("train_dataset")
        if rows is not None:
            yield trainer, (rows,)
    for backward in trace.methods("backward"):
        loops = [loop.value for loop in backward.frames("loop") if loop.value is not None]
        yield backward, tuple(loops)


def _naming_event_or_training_call(trace: Trace, cut: Value, training: CallEvent) -> Event:
    """The event at which a slice of rows gets its name; the call of the training itself where it
    gets none.
    """
    named = (one for one in trace.uses(cut) if isinstance(one, NameEvent))
    return next(named, training)


def _row_limit_on_way_to_source(
    value: Value, depth: int
) -> tuple[CallEvent | Item, RowLimit] | None:
    """The call or slice that leaves few rows on the one way back from a data set; None where
    nothing does.
    """
    if depth > MAX_DEPTH:
        return None
    if isinstance(value, Item):
        return _row_limit_of_item(value, depth)
    if not isinstance(value, Result):
        return None
    call = value.call
    rows = _few_rows_left_by(call)
    if rows is not None:
        return call, RowLimit(call.node, f"{rows:,} rows", _row_limiting_code_for_message(call))
    inner = _data_passed_on(call)
    return None if inner is None else _row_limit_on_way_to_source(inner, depth + 1)


def _row_limit_of_item(value: Item, depth: int) -> tuple[CallEvent | Item, RowLimit] | None:
    """The limit on the way back from an index: of `rows[:100]` itself, or of what an entry such as
    `rows["train"]` is taken of; None where nothing limits.
    """
    rows = _few_rows_of_slice(value)
    loaded = value.base.call if isinstance(value.base, Result) else None
    if rows is not None and loaded is not None and value.node is not None:
        if not loaded.named("datasets.load_dataset", "json.load*"):
            return None
        return value, RowLimit(value.node, f"{rows:,} rows", "the slice of rows")
    is_one_row = isinstance(constant_of(value.key), int)
    return None if is_one_row else _row_limit_on_way_to_source(value.base, depth + 1)


def _row_limiting_code_for_message(call: CallEvent) -> str:
    """What in a call leaves few rows, as a message names it."""
    if call.named(*TABLE_READERS):
        return "nrows"
    return f"{call.method}(...)" if call.method else "the slice of split"


def _data_passed_on(call: CallEvent) -> Value | None:
    """The data whose rows a call gives on; None where it is not known."""
    if call.method in KEEPS_ROWS or call.method in ("map", *TABLE_METHODS):
        return call.receiver
    if call.named(*FROM_TABLES):
        return call.args[0] if call.args else None
    if call.named(*LOADERS):
        return call.argument(0, "dataset")
    if call.method == "prepare" and len(call.args) == 1:
        return call.args[0]
    if call.named("enumerate", *PASSES_ON) and call.args:
        return call.args[0]
    return None


def _few_rows_left_by(call: CallEvent) -> int | None:
    """The small number of rows that a call leaves; None where it leaves more, or it is not known."""
    counted = _row_number_argument(call)
    if counted is not None:
        return _small_fixed_number(counted, MAX_ROWS)
    if call.method == "take":
        return _small_fixed_number(
            call.argument(0, "n"), MAX_STREAMED_ROWS if _gives_streamed_rows(call) else MAX_ROWS
        )
    if call.named("datasets.load_dataset"):
        split = constant_of(call.argument(-1, "split"), with_defaults=False)
        match = SPLIT_OF_ROWS.fullmatch(split) if isinstance(split, str) else None
        if match is not None and 1 < int(match["rows"]) <= MAX_ROWS:
            return int(match["rows"])
    return None


def _gives_streamed_rows(call: CallEvent) -> bool:
    """Are these rows of a stream?"""
    value = call.receiver
    for _ in range(MAX_DEPTH):
        if isinstance(value, Item | Attribute | Element):
            return False
        if not isinstance(value, Result):
            return False
        if value.call.named("datasets.load_dataset"):
            return constant_of(value.call.argument(-1, "streaming")) is True
        value = _data_passed_on(value.call)
    return False


def _few_rows_of_slice(value: Item) -> int | None:
    """The rows that `rows[:100]` leaves."""
    key = value.key
    if isinstance(key, Slice) and key.start is None and key.step is None:
        return _small_fixed_number(key.stop, MAX_ROWS)
    return None


def _small_fixed_number(value: Value | None, most: int) -> int | None:
    """The number of rows that a value says, if it is fixed and at most `most`; None otherwise, also
    where a user may give another.
    """
    number = constant_of(value, with_defaults=False)
    is_number = (
        isinstance(number, int) and not isinstance(number, bool) and number is not NO_CONSTANT
    )
    return number if is_number and 1 < number <= most else None


def _lightning_limit_to_few_steps(trainer: CallEvent) -> str | None:
    """What a Lightning trainer leaves of each epoch, where all of its epochs are few steps."""
    batches = constant_of(trainer.keywords.get("limit_train_batches"), with_defaults=False)
    epochs = constant_of(trainer.keywords.get("max_epochs"), with_defaults=False)
    if type(batches) is not int or type(epochs) is not int or batches < 1:
        return None
    return f"{batches:,} batches an epoch" if batches * epochs <= MAX_LIGHTNING_STEPS else None
