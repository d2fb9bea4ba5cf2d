"""Follows a training script symbolically with the real rows of its files, so that what it makes of
them is known.

How it works: as the run of `truetune.source.symbolic_execution`, but files of rows are read, loops over lists that are
known run once for each item, and options are as a command gives them, or by default. So what a script makes of its
rows is known as text, as far as nothing but the script and its files decides it. Nothing is executed.

The trade-off: where no tokenizer is available, special tokens are empty texts. A text that the chat template renders is
kept as the conversation that it renders (`RenderedChat`), so that rules and encoders see its turns.
"""

from __future__ import annotations

import ast
import time
from dataclasses import dataclass
from glob import has_magic
from pathlib import Path
from typing import Any

from truetune.data.script_rows.compute_dataset_methods_on_known_rows import (
    COLUMN,
    Row,
    Table,
    add_table_column,
    call_table_method,
    make_table,
    row_or_columns_of_table,
    table_of_column_lists,
    table_of_dictionaries,
)
from truetune.data.script_rows.compute_on_dataframe_columns import (
    call_column_method,
    is_frame_column,
    operate_on_columns,
    rows_selected_by_mask,
)
from truetune.data.script_rows.compute_on_number_lists import (
    extend_number_list,
    join_number_lists,
    repeat_list,
    set_item_or_slice,
)
from truetune.data.script_rows.compute_path_methods_on_texts import (
    attribute_of_path,
    path_from_method,
)
from truetune.data.script_rows.compute_python_functions_on_known_values import (
    MATCH,
    call_known_function,
    format_text,
    regex_flags,
    search_pattern,
    slice_text,
)
from truetune.data.script_rows.compute_tensors_with_numpy import (
    attribute_of_tensor,
    call_function_of_tensors,
    call_method_of_tensor,
    is_tensor,
    item_of_tensor,
    operate_on_tensors,
)
from truetune.data.script_rows.compute_tokenizer_calls_of_script import (
    ChatIds,
    Padding,
    ScriptTokenizer,
    call_apply_chat_template,
    call_encode,
    call_pad,
    call_tokenizer,
)
from truetune.data.script_rows.row_files_of_script import OpenFile, RowFiles
from truetune.errors import TruetuneError
from truetune.parsing import InputLimitError
from truetune.parsing.parse_yaml_within_limits import parse_yaml
from truetune.source.find_command_line_option_values import option_value_from_commands_by_name
from truetune.source.parsed_source_file import Module
from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.interpreter import (
    Arguments,
    Interpreter,
    LimitReached,
)
from truetune.source.symbolic_execution.lists_and_dicts import constant_key_of_index, plain_to_value
from truetune.source.symbolic_execution.trace_of_events import CallEvent
from truetune.source.symbolic_execution.values_of_run import (
    NO_CONSTANT,
    Attribute,
    Constant,
    Function,
    Item,
    Mapping,
    Opaque,
    Option,
    Partial,
    Result,
    Scope,
    Sequence,
    Slice,
    Unknown,
    Value,
)

MAX_STEPS = 4_000_000
"""Statements and expressions of one run: about twelve seconds. A row takes some hundred"""
MAX_SECONDS = 10.0
"""Of processor time, for one run: what a step costs depends on the texts. By the clock, a busy machine
would end other runs than an idle one, and the verdicts would differ"""
MAX_STEPS_WITHOUT_FILES = 50_000
"""Steps of a run that has read no file: a game or simulation for rewards, whose rows are nowhere to be read"""
MAX_TEXT = 1_000_000
"""Characters of a text that is put together"""
SPECIAL_TOKENS = ("eos_token", "bos_token", "pad_token", "unk_token")
CALLS_OF_TOKENIZER = {
    "apply_chat_template": call_apply_chat_template,
    "encode": call_encode,
    "pad": call_pad,
}
TOKENIZER_METHODS = (*CALLS_OF_TOKENIZER, "convert_tokens_to_ids")
TOKENIZER_LOADS = (
    "transformers.*Tokenizer*.from_pretrained",
    "transformers.*Processor.from_pretrained",
)
PAIR_LOADS = ("unsloth.*.from_pretrained",)
"""Loads of a model together with its tokenizer"""
SHUFFLES = ("random.shuffle", "numpy.random.shuffle")
YAML_PARSERS = ("yaml.safe_load", "yaml.load", "yaml.full_load")
JSON_PARSERS = ("json.loads", "orjson.loads", "ujson.loads")
OPENERS = ("open", "io.open", "gzip.open", "codecs.open", "bz2.open", "lzma.open")
FILE_READERS = (
    "datasets.Dataset.from_json",
    "datasets.Dataset.from_csv",
    "datasets.Dataset.from_parquet",
    "pandas.read_json",
    "pandas.read_csv",
    "pandas.read_parquet",
    "pandas.read_table",
    "polars.read_csv",
    "polars.read_ndjson",
    "polars.read_parquet",
)
TABLES_OF_VALUES = (
    "datasets.Dataset.from_list",
    "datasets.Dataset.from_pandas",
    "pandas.DataFrame",
    "pandas.DataFrame.from_records",
)
LOCAL_FORMATS = ("json", "csv", "parquet", "text", "pandas")
"""What `load_dataset` reads files of the machine by"""
NAME_OF_SPLIT = "train"
"""The split that a file is, where `data_files` names none"""


@dataclass(eq=False, slots=True)
class RenderedChat(Opaque):
    """A text that the chat template makes of a conversation."""

    messages: Value
    text: str | None = None
    """What the template writes; None where no tokenizer is available"""


class ConcreteRun(Interpreter):
    """One run with rows; see the module."""

    max_steps = MAX_STEPS
    max_calls_of_function = MAX_STEPS

    def __init__(
        self,
        entry: Module,
        files: RowFiles,
        tokenizer: ScriptTokenizer | None = None,
        *,
        keeps_chats: bool = True,
    ) -> None:
        """Prepare a run.

        Args:
            entry: The script.
            files: The files that it may read.
            tokenizer: The one that it loads, where it is available.
            keeps_chats: Keep a text that the template renders as its conversation; else it is a text like any other.
        """
        super().__init__(entry)
        self.files = files
        self._keeps_chats = keeps_chats
        self._tokenizer = tokenizer
        self._makes_batches = False
        self._deadline = time.process_time() + MAX_SECONDS

    def call_method(self, instance: Value, name: str, args: tuple[Value, ...]) -> Value | None:
        """The result of calling a method of one of the script's own objects; None if its class has
        no such method.
        """
        method = self._attribute(instance, name, None)
        return self.call_script_function(method, args) if isinstance(method, Function) else None

    def call_script_function(
        self, function: Value, args: tuple[Value, ...], named: dict[str, Value] | None = None
    ) -> Value:
        """The result of calling a function of the script with these arguments."""
        place = function.node or self._entry.tree
        return self.call(function, Arguments(args, dict(named or {})), place, self._entry)

    # Limits

    def _count_step(self) -> None:
        """Count one step of the run. Raises LimitReached after too much time, or after many steps
        without a file of rows.
        """
        super()._count_step()
        # The clock is asked seldom: it costs more than a step.
        if self._steps % 1_000 != 0:
            return
        if self._steps >= MAX_STEPS_WITHOUT_FILES and not self.files.read:
            raise LimitReached
        self._stop_if_late()

    def _stop_if_late(self) -> None:
        """Raise LimitReached after too much time. Asked before each operation on a tensor, which may take as long as
        thousands of steps.
        """
        if time.process_time() > self._deadline:
            raise LimitReached

    # Loops over what is known

    def _items_that_get_own_loop_pass(self, iterable: Value) -> list[Value] | None:
        """The items that a loop over a value takes, with the lines of an open file and the keys of
        a row; None if they are not known.
        """
        if isinstance(iterable, OpenFile):
            iterable = self.files.text_lines(iterable.path)
        if isinstance(iterable, Sequence) and not iterable.is_open:
            return list(iterable.items)
        if isinstance(iterable, Row):
            self.files.note_column_read(iterable)
        if isinstance(iterable, Mapping) and not iterable.is_open and iterable.rest is None:
            return [Constant(key) for key in iterable.entries]
        return super()._items_that_get_own_loop_pass(iterable)

    def _is_in_loop(self) -> bool:
        """Does the run stand inside a loop whose passes are not known? Then it is not known either
        how often a list grows there.
        """
        frames = () if self._frame is None else self._frame.self_and_outer_frames()
        return any(
            frame.kind in ("loop", "comprehension")
            and (frame.value is None or not self._has_known_items(frame.value))
            for frame in frames
        )

    def _has_known_items(self, iterable: Value) -> bool:
        """Are the passes of a loop over this value known? Asked at each `append`, so that the lines
        of a file are not read again.
        """
        if isinstance(iterable, OpenFile):
            return iterable.path in self.files.read
        if isinstance(iterable, Sequence) and not iterable.is_open:
            return True
        return self._items_that_get_own_loop_pass(iterable) is not None

    def _run_body(self, function: Function, scope: Scope) -> Value:
        """Run the body of a function. The items that a generator yields are a list that is known
        whole, outside of unknown loops.
        """
        value = super()._run_body(function, scope)
        is_generator = scope.yielded and isinstance(value, Sequence)
        if is_generator and isinstance(value, Sequence) and not self._is_in_loop():
            # A generator gives its items in order; only loops that are not known would add others.
            value.is_open = any(isinstance(one, Opaque) for one in scope.yielded)
        return value

    def _bind_name(
        self, name: str, value: Value, scope: Scope, node: ast.AST, *, is_augmented: bool = False
    ) -> None:
        """Give a name its value, in the module if it is declared global, without an event: rows
        would make millions of them.
        """
        home = scope
        if name in scope.global_names:
            while home.parent is not None and (home is scope or name not in home.names):
                home = home.parent
        # No event: rows would make millions of them.
        self._write_with_undo_record(home.names, name, value)

    def _add_to_trace(self, value: Value) -> Value:
        """Return the value without noting it in the trace, which would hold every row."""
        return value

    # Options have what a command gives, or their defaults

    def evaluate(self, node: ast.expr, scope: Scope) -> Value:
        """The value of an expression, with a value for each option of the command line."""
        value = super().evaluate(node, scope)
        return self._value_or_default_of_option(value) if isinstance(value, Option) else value

    def _value_or_default_of_option(self, option: Option) -> Value:
        """What a command beside the script gives for an option, otherwise its default, or the
        option itself if it has none.
        """
        given_option = option_value_from_commands_by_name(self._entry.path, option.name)
        if given_option is not None:
            return Constant(given_option.value)
        return option if option.default is None else option.default

    def _record_library_call(
        self,
        names: tuple[str, ...],
        method: str | None,
        receiver: Value | None,
        arguments: Arguments,
        node: ast.AST,
        home: Module,
    ) -> CallEvent:
        """Note a call of a library. A row that it is given counts as read whole, for the library
        may read any column.
        """
        for value in (*arguments.args, *arguments.keywords.values()):
            if isinstance(value, Row):
                # What a library makes of a whole row is not known: it may read any column.
                self.files.note_column_read(value)
        return super()._record_library_call(names, method, receiver, arguments, node, home)

    # Operators, attributes, items

    def _operate(self, sign: str, operands: tuple[Value, ...], node: ast.AST) -> Value:
        """The result of an operator, also on long texts, columns, tensors and rendered chats."""
        known = self._operate_on_known(sign, operands)
        return super()._operate(sign, operands, node) if known is None else known

    def _operate_on_known(self, sign: str, operands: tuple[Value, ...]) -> Value | None:
        """The result of an operator that the plain run does not compute: on long texts, paths,
        columns, tensors, rendered chats. None if it is not known.
        """
        if sign in ("+", "format"):
            chat = self._rendered_chat_plus_eos(operands)
            if chat is not None:
                return chat
            operands = tuple(_rendered_chat_as_text(one) for one in operands)
        if any(map(is_frame_column, operands)):
            return operate_on_columns(sign, operands)
        plain = [constant_of(one) for one in operands]
        if sign in ("+", "format", "/") and _are_nonempty_texts(plain):
            return _join_texts_or_paths(sign, plain)
        if any(map(is_tensor, operands)):
            self._stop_if_late()
            of_tensors = operate_on_tensors(sign, operands)
            if of_tensors is not None:
                return of_tensors
        if sign == "*":
            return repeat_list(operands[0], operands[1])
        if sign in ("in", "not in"):
            return _test_membership(sign, plain[0], operands[1])
        return None

    def _join_lists(self, left: Sequence, right: Sequence, node: ast.BinOp) -> Sequence:
        """Two lists joined by `+`, with all of their items if these are numbers."""
        joined = join_number_lists(left, right)
        return super()._join_lists(left, right, node) if joined is None else joined

    def _rendered_chat_plus_eos(self, operands: tuple[Value, ...]) -> RenderedChat | None:
        """The rendered chat among the operands, if only an EOS token or a line break is added to
        it; None otherwise. Trainers add the EOS themselves.
        """
        chats = [one for one in operands if isinstance(one, RenderedChat)]
        if not chats:
            return None
        others = [constant_of(one) for one in operands if one is not chats[0]]
        return chats[0] if all(one in ("", self._eos_text(), "\n") for one in others) else None

    def _eos_text(self) -> str:
        """The text of the EOS token; empty without a tokenizer."""
        return "" if self._tokenizer is None else self._tokenizer.special.get("eos_token", "")

    def _attribute(self, base: Value, name: str, node: ast.AST | None) -> Value:
        """The value of an attribute, also of data sets and paths, and of the tokenizer's special
        tokens.
        """
        known = _attribute_of_table_column_or_path(base, name)
        if known is not None:
            return known
        value = super()._attribute(base, name, node)
        is_unset = isinstance(value, Opaque) and isinstance(base, Opaque)
        if not is_unset or name.removesuffix("_id") not in SPECIAL_TOKENS:
            return value
        if self._tokenizer is None:
            return value if name.endswith("_id") else Constant("")
        return self._special_token_or_id(base, name) or value

    def _special_token_or_id(self, base: Value, name: str) -> Value | None:
        """A special token of the tokenizer, or its id for names that end with `_id`; None if it has
        none.
        """
        if self._tokenizer is None:
            return None
        token: Any = self._tokenizer.special.get(name.removesuffix("_id"))
        if name.endswith("_id"):
            # The script may have set another token: `tokenizer.pad_token = tokenizer.eos_token`.
            given = constant_of(self._attribute(base, name.removesuffix("_id"), None))
            token = given if isinstance(given, str) else token
            token = None if token is None else self._tokenizer.id_of(token)
        return None if token is None else Constant(token)

    def _item(self, base: Value, key: Value, node: ast.AST | None) -> Value:
        """The value of `base[key]`, also of rows, tables, texts and encoded chats. The column is
        noted as read.
        """
        if isinstance(base, Row):
            self.files.note_column_read(base, constant_key_of_index(key))
        if isinstance(base, ChatIds) and constant_of(key) == "input_ids":
            return Sequence("list", base.items)
        if is_tensor(base):
            self._stop_if_late()
            of_tensor = item_of_tensor(base, key)
            if of_tensor is not None:
                return of_tensor
            if isinstance(key, Sequence):
                return Unknown("a part of a tensor")  # of a list it would be one of the items
        text = constant_of(base)
        if isinstance(text, str) and isinstance(key, Slice):
            part = slice_text(text, key)
            if part is not None:
                return part
        if isinstance(base, Table):
            self._note_column_read(base, key)
            of_table = _part_of_table(base, key)
            if of_table is not None:
                return of_table
        return super()._item(base, key, node)

    def _note_column_read(self, table: Table, key: Value) -> None:
        """Note that the script takes a column out of a data set. Columns that are chosen by a list
        are not read by that.
        """
        name = constant_of(key)
        if isinstance(name, str) and table.rows:
            self.files.note_column_read(table.rows[0], name)

    def _evaluate_call_arguments(self, node: ast.Call, scope: Scope) -> Arguments:
        """The arguments of a call. A row that is unpacked by `**row` counts as read whole."""
        for keyword in node.keywords:
            if keyword.arg is None and isinstance(keyword.value, ast.Name):
                unpacked = self.evaluate(keyword.value, scope)
                if isinstance(unpacked, Row):
                    self.files.note_column_read(unpacked)
        return super()._evaluate_call_arguments(node, scope)

    def _set_item(
        self,
        base: Value,
        key: Value,
        value: Value,
        scope: Scope,
        node: ast.AST,
        *,
        is_augmented: bool = False,
    ) -> None:
        """Set `base[key]`, also a column of a table or a slice of a list."""
        if isinstance(base, Table):
            changed = add_table_column(base, constant_of(key), value)
            base.items[:] = changed.items if changed else []
            base.is_open = base.is_open or changed is None
            return
        if is_tensor(base):
            self._stop_if_late()
        if isinstance(base, Sequence) and not base.is_open and set_item_or_slice(base, key, value):
            return
        super()._set_item(base, key, value, scope, node, is_augmented=is_augmented)

    # Calls

    def _call_method(
        self, receiver: Value, name: str, arguments: Arguments, node: ast.AST, home: Module
    ) -> Value:
        """The result of a method call, also of a table, a file, a text or a tokenizer."""
        known = self._call_method_on_rows_or_text(receiver, name, arguments)
        if known is not None:
            return known
        return super()._call_method(receiver, name, arguments, node, home)

    def _call_method_on_rows_or_text(
        self, receiver: Value, name: str, arguments: Arguments
    ) -> Value | None:
        """The result of a method of a row, table, file, text or tokenizer; None if it is not known."""
        if isinstance(receiver, Table):
            return self._call_method_on_table(receiver, name, arguments)
        if isinstance(receiver, Row):
            # `get`, `pop`, `items`, ...: what they give holds the column's text, or that of all columns.
            self.files.note_column_read(
                receiver, constant_key_of_index(arguments.args[0]) if arguments.args else None
            )
        if isinstance(receiver, Mapping) and _are_tables(receiver):
            return self._call_method_on_each_table(receiver, name, arguments)
        if isinstance(receiver, OpenFile):
            return self._call_method_on_open_file(receiver.path, name)
        return self._call_method_on_plain_value(receiver, name, arguments)

    def _call_method_on_plain_value(
        self, receiver: Value, name: str, arguments: Arguments
    ) -> Value | None:
        """The result of a method of a text, list, pattern or tokenizer; None if it is not known."""
        if isinstance(receiver, RenderedChat) and name in ("strip", "rstrip", "lstrip"):
            return receiver
        if isinstance(receiver, Constant) and isinstance(receiver.value, str):
            return self._call_method_on_text(receiver.value, name, arguments)
        if isinstance(receiver, Opaque) and name in TOKENIZER_METHODS:
            return self._call_method_on_tokenizer(receiver, name, arguments)
        if isinstance(receiver, Result) and receiver.call.named("re.compile"):
            return _search_with_compiled_pattern(receiver.call, name, arguments)
        return (
            self._call_method_on_list(receiver, name, arguments)
            if isinstance(receiver, Sequence)
            else None
        )

    def _call_method_on_list(
        self, receiver: Sequence, name: str, arguments: Arguments
    ) -> Value | None:
        """The result of a method of a regex match, a column, or a list of numbers; None if it is
        not known.
        """
        if receiver.kind == MATCH:
            return _groups_of_match(receiver, name, arguments)
        if receiver.kind == COLUMN:
            return call_column_method(receiver, name, arguments.args, self.call_script_function)
        self._stop_if_late()
        return _call_method_on_numbers(receiver, name, arguments)

    def _call_method_on_tokenizer(
        self, receiver: Value, name: str, arguments: Arguments
    ) -> Value | None:
        """The result of a method of the tokenizer; None if it is not known."""
        padding = self._padding_of_tokenizer(receiver)
        if name == "apply_chat_template" and self._keeps_chats:
            chat = _render_chat_as_text(arguments)
            if chat is not None and self._tokenizer is not None:
                chat.text = known_text(
                    call_apply_chat_template(
                        self._tokenizer, arguments.args, arguments.keywords, padding
                    )
                )
            return chat
        if self._tokenizer is None:
            return None
        call_method = CALLS_OF_TOKENIZER.get(name)
        if call_method is not None:
            return call_method(self._tokenizer, arguments.args, arguments.keywords, padding)
        token = constant_of(arguments.args[0]) if arguments.args else None
        number = self._tokenizer.id_of(token) if isinstance(token, str) else None
        return None if number is None else Constant(number)

    def call(self, function: Value, given: Arguments, node: ast.AST, home: Module) -> Value:
        """The result of calling a value: the tokenizer itself, or anything that the plain run
        calls.
        """
        if self._tokenizer is not None and is_loaded_tokenizer(function):
            padding = self._padding_of_tokenizer(function)
            encoded = call_tokenizer(self._tokenizer, given.args, given.keywords, padding)
            if encoded is not None:
                return encoded
        return super().call(function, given, node, home)

    def _padding_of_tokenizer(self, tokenizer: Value) -> Padding:
        """How the tokenizer pads: with the token and on the side that the script sets, otherwise its own.

        Without a pad token the EOS token stands in, as scripts set it, otherwise the id 0.
        """
        side = constant_of(self._attribute(tokenizer, "padding_side", None))
        if side not in ("left", "right"):
            side = "right" if self._tokenizer is None else self._tokenizer.padding_side
        ids = (
            constant_of(self._attribute(tokenizer, name, None))
            for name in ("pad_token_id", "eos_token_id")
        )
        pad = next((one for one in ids if type(one) is int), 0)
        return Padding(
            pad, side, self._makes_batches, self._model_max_length_of_tokenizer(tokenizer)
        )

    def _model_max_length_of_tokenizer(self, tokenizer: Value) -> int | None:
        """The limit that the script sets for its tokenizer, otherwise its own; None where it is not known."""
        # Loaders that give a model as well may set a limit of their own.
        is_alone = isinstance(tokenizer, Result) and tokenizer.call.named(*TOKENIZER_LOADS)
        if self._tokenizer is None or not isinstance(tokenizer, Result) or not is_alone:
            return None
        stated = self._attribute(tokenizer, "model_max_length", None)
        if isinstance(stated, Attribute):
            # No statement sets it: it is an attribute of the tokenizer still.
            model_max_length_argument = tokenizer.call.keywords.get("model_max_length")
            if model_max_length_argument is None:
                return self._tokenizer.model_max_length
            stated = model_max_length_argument
        limit = constant_of(stated)
        return limit if type(limit) is int else None

    def padding_of_script(self) -> Padding:
        """How the last tokenizer pads that the script loads."""
        loaded = [one.result for one in self.trace.calls(*TOKENIZER_LOADS)]
        return self._padding_of_tokenizer(loaded[-1] if loaded else Unknown("a tokenizer"))

    def make_batch(self, collator: Value, rows: list[Value]) -> Value:
        """What a collator of the script makes of rows: texts of one call are padded to the longest."""
        self._makes_batches = True
        try:
            return self.call_script_function(collator, (Sequence("list", list(rows)),))
        finally:
            self._makes_batches = False

    def _call_method_on_table(self, table: Table, name: str, arguments: Arguments) -> Value | None:
        """The result of a method of a data set or a frame; None if it is not known."""
        if name in ("apply", "progress_apply"):
            return self._apply_to_rows(table, arguments)
        if name == "assign":
            return self._assign_columns(table, arguments)
        made = call_table_method(
            table, name, arguments.args, arguments.keywords, self.call_script_function
        )
        return made

    def _apply_to_rows(self, table: Table, arguments: Arguments) -> Value | None:
        """`frame.apply(function, axis=1)`: a column of the function's results, or a frame if it
        returns rows.
        """
        if not arguments.args or constant_of(arguments.keywords.get("axis")) not in (1, "columns"):
            return None
        results = [self.call_script_function(arguments.args[0], (row,)) for row in table.rows]
        if results and all(isinstance(one, Mapping) for one in results):
            places = [row.place for row in table.rows if row.place is not None]
            return table_of_dictionaries(Sequence("list", list(results)), places)
        return Sequence(COLUMN, list(results))

    def _assign_columns(self, table: Table, arguments: Arguments) -> Value | None:
        """`frame.assign(label=...)`: the frame with more columns; None if they are not known."""
        made: Table | None = table
        for name, value in arguments.keywords.items():
            if made is None:
                return None
            is_function = isinstance(value, Function | Partial)
            made = add_table_column(
                made, name, self.call_script_function(value, (made,)) if is_function else value
            )
        return made

    def _call_method_on_each_table(
        self, tables: Mapping, name: str, arguments: Arguments
    ) -> Value | None:
        """The result of a method of a dictionary of data sets, which does the same to each; None if
        it is not known.
        """
        changed: dict[Any, Value] = {}
        for split, table in tables.entries.items():
            made = (
                self._call_method_on_table(table, name, arguments)
                if isinstance(table, Table)
                else None
            )
            if made is None:
                return None
            changed[split] = made
        return Mapping(changed)

    def _call_method_on_open_file(self, path: Path, method: str) -> Value | None:
        """The result of `read`, `readlines` and the like of an open file; None for any other
        method.
        """
        if method in ("readlines", "__iter__"):
            return self.files.text_lines(path)
        if method in ("read", "read_text"):
            lines = self.files.text_lines(path)
            plain = constant_of(lines)
            return Constant("".join(plain)) if isinstance(plain, list) else None
        return None

    def _call_method_on_text(self, text: str, name: str, arguments: Arguments) -> Value | None:
        """The result of a method of a text that the plain run leaves out: formats, and methods of
        the path that the text is. None if it is not known.
        """
        if name == "format":
            return format_text(text, arguments.args, arguments.keywords)
        other = path_from_method(text, name, [constant_of(one) for one in arguments.args])
        if other is not None:
            return other
        if name in ("glob", "rglob"):
            return self._glob_below_folder(text, name, arguments)
        path = self.files.find(text) if name in ("open", "read_text", "exists", "is_file") else None
        if path is None:
            return None
        if name == "open":
            return OpenFile(path)
        if name in ("exists", "is_file"):
            return Constant(True)
        return self._call_method_on_open_file(path, "read")

    def _glob_below_folder(self, folder: str, method: str, arguments: Arguments) -> Value | None:
        """`Path(folder).glob(pattern)`: the files below a folder that fit a pattern."""
        pattern = constant_of(arguments.args[0]) if arguments.args else None
        if not isinstance(pattern, str):
            return None
        below = f"**/{pattern}" if method == "rglob" else pattern
        return self._glob(f"{folder}/{below}")

    def _glob(self, pattern: Any) -> Value | None:
        """The list of the names of files that a pattern fits; None if there are none."""
        names = self.files.names_matching_glob(pattern) if isinstance(pattern, str) else []
        return Sequence("list", [Constant(one) for one in names]) if names else None

    def _call_library(self, name: str, arguments: Arguments, node: ast.AST, home: Module) -> Value:
        """The result of a library's function, also of those that read files, make data sets, or
        compute on known values.
        """
        known = self._call_reader_or_dataset_maker(name, arguments)
        if known is None:
            known = self._call_on_known_values(name, arguments)
        return super()._call_library(name, arguments, node, home) if known is None else known

    def _call_reader_or_dataset_maker(self, name: str, arguments: Arguments) -> Value | None:
        """The result of a function that reads files or makes a data set; None for any other."""
        first = arguments.args[0] if arguments.args else None
        read = self._call_file_reader(name, first or arguments.keywords.get("file"))
        return self._call_dataset_maker(name, first, arguments) if read is None else read

    def _call_file_reader(self, name: str, first: Value | None) -> Value | None:
        """The result of a function that opens or reads a file; None for any other."""
        if name in OPENERS:
            path = self.files.find(constant_of(first))
            return None if path is None else OpenFile(path)
        if name in FILE_READERS:
            return self._table_of_file(first)
        if name in YAML_PARSERS and first is not None:
            return self._parse_yaml_settings(first)
        if name == "glob.glob":
            return self._glob(constant_of(first))
        return self._parse_opened_file(name, first.path) if isinstance(first, OpenFile) else None

    def _parse_opened_file(self, name: str, path: Path) -> Value | None:
        """`json.load` or `csv.DictReader` of a file that the script opened."""
        if name == "json.load":
            return self.files.read_json_object_file(path) or self.files.table_of_rows_in_file(path)
        return self.files.table_of_rows_in_file(path) if name == "csv.DictReader" else None

    def _call_dataset_maker(
        self, name: str, first: Value | None, arguments: Arguments
    ) -> Value | None:
        """The data set that a function of `datasets` or pandas makes of rows or files; None if it
        is not known.
        """
        if name == "datasets.load_dataset":
            return self._load_dataset(arguments)
        if name in TABLES_OF_VALUES:
            rows = first or arguments.keywords.get("mapping") or arguments.keywords.get("data")
            return self._table_of_rows_or_columns(rows)
        if name == "pandas.Series":
            return _pandas_series(first)
        if name == "datasets.Dataset.from_generator":
            return self._dataset_from_generator(arguments)
        return None if first is None else self._make_dataset_of_known_values(name, first)

    def _make_dataset_of_known_values(self, name: str, first: Value) -> Value | None:
        """The data set that a function of `datasets` makes of columns or other data sets; None if
        it is not known.
        """
        if name == "datasets.Dataset.from_dict":
            return table_of_column_lists(first, self.files.places_of_rows_in_file(first))
        if name == "datasets.DatasetDict" and isinstance(first, Mapping):
            return first
        if name == "datasets.concatenate_datasets" and isinstance(first, Sequence):
            return _concatenate_tables(first)
        return None

    def _table_of_rows_or_columns(self, rows: Value | None) -> Table | None:
        """A table of a list of rows, or of a dictionary of columns; None if it is not known."""
        if rows is None:
            return None
        places = self.files.places_of_rows_in_file(rows)
        return table_of_dictionaries(rows, places) or table_of_column_lists(rows, places)

    def _parse_yaml_settings(self, given: Value) -> Value | None:
        """The settings that a script reads as YAML from an open file or a text; None if they are
        not known.
        """
        if isinstance(given, OpenFile):
            given = self._call_method_on_open_file(given.path, "read") or given
        text = constant_of(given)
        try:
            return plain_to_value(parse_yaml(text).value) if isinstance(text, str) else None
        except (InputLimitError, ValueError, TruetuneError):
            return None

    def _call_on_known_values(self, name: str, arguments: Arguments) -> Value | None:
        """The result of a function of Python or torch on known values; None if it is not known."""
        if name in ("sorted", "max", "min") and "key" in arguments.keywords and arguments.args:
            return self._sort_by_script_function(name, arguments)
        if name in ("map", "filter") and len(arguments.args) == 2:
            return self._map_or_filter_list(name, arguments.args[0], arguments.args[1])
        args = arguments.args
        if name in SHUFFLES and args and isinstance(args[0], Sequence):
            _shuffle_unless_rows(args[0])
            return Constant(None)
        if args and isinstance(args[0], OpenFile):
            args = (self.files.text_lines(args[0].path), *args[1:])
        self._stop_if_late()
        return _call_function_without_script_callbacks(name, args, arguments.keywords)

    def _sort_by_script_function(self, name: str, arguments: Arguments) -> Value | None:
        """`sorted`, `max` and `min` of known items by a function of the script; None if that is not
        known.
        """
        items = self._items_that_get_own_loop_pass(arguments.args[0])
        function = arguments.keywords["key"]
        if not items or not isinstance(function, Function | Partial):
            return None
        keys = [constant_of(self.call_script_function(function, (one,))) for one in items]
        if any(key is NO_CONSTANT for key in keys):
            return None
        is_reversed = constant_of(arguments.keywords.get("reverse")) is True
        try:
            order = sorted(range(len(items)), key=lambda place: keys[place], reverse=is_reversed)
        except TypeError:
            return None
        if name == "sorted":
            return Sequence("list", [items[place] for place in order])
        # Of equal items Python takes the first one.
        best = keys[order[0]] if name == "min" else keys[order[-1]]
        return items[keys.index(best)]

    def _map_or_filter_list(self, name: str, function: Value, items: Value) -> Value | None:
        """`map(function, items)` and `filter(function, items)` as a list; None if it is not known."""
        known = self._items_that_get_own_loop_pass(items)
        if known is None or not isinstance(function, Function | Partial):
            return None
        given = [self.call_script_function(function, (one,)) for one in known]
        if name == "map":
            return Sequence("list", given)
        verdicts = [constant_of(one) for one in given]
        if any(verdict is NO_CONSTANT for verdict in verdicts):
            return None
        kept = [one for one, verdict in zip(known, verdicts, strict=True) if verdict]
        return Sequence("list", kept)

    def _dataset_from_generator(self, arguments: Arguments) -> Value | None:
        """`Dataset.from_generator(function, gen_kwargs={...})`: a table of the rows that the
        function yields; None if they are not known.
        """
        if not arguments.args:
            return None
        named = arguments.keywords.get("gen_kwargs")
        keywords = (
            {str(key): one for key, one in named.entries.items()}
            if isinstance(named, Mapping)
            else {}
        )
        rows = self.call_script_function(arguments.args[0], (), keywords)
        return table_of_dictionaries(rows, self.files.places_of_rows_in_file(rows))

    def _table_of_file(self, name: Value | None) -> Table | None:
        """The table of the rows in a file that a script names; None if there is none."""
        if isinstance(name, OpenFile):
            return self.files.table_of_rows_in_file(name.path)
        path = self.files.find(constant_of(name))
        return None if path is None else self.files.table_of_rows_in_file(path)

    def _load_dataset(self, arguments: Arguments) -> Value | None:
        """`load_dataset("json", data_files=...)`: a table, or a dictionary of tables by split; None
        if it names no file beside the script.
        """
        if not arguments.args or constant_of(arguments.args[0]) not in LOCAL_FORMATS:
            return None
        files = arguments.keywords.get("data_files")
        by_split = files.entries if isinstance(files, Mapping) else {NAME_OF_SPLIT: files}
        tables: dict[Any, Value] = {}
        for split, name in by_split.items():
            table = self._table_of_files(name)
            if table is None:
                return None
            tables[split] = table
        wanted = constant_of(arguments.keywords.get("split"))
        if wanted is NO_CONSTANT or wanted is None:
            return Mapping(tables)
        # Of "train[:90%]" the split alone counts: which rows are left out changes none of the others.
        split, part, _ = str(wanted).partition("[")
        chosen = tables.get(split)
        if part and isinstance(chosen, Table):
            chosen.notes.append(f"of the split {wanted} all rows are taken")
        return chosen

    def _table_of_files(self, names: Value | None) -> Table | None:
        """The table of the rows in one file, in a list of files, or in those that a pattern fits,
        one after the other.
        """
        pattern = constant_of(names)
        if isinstance(pattern, str) and has_magic(pattern):
            names = Sequence(
                "list", [Constant(name) for name in self.files.names_matching_glob(pattern)]
            )
        if not isinstance(names, Sequence):
            return self._table_of_file(names)
        tables = [self._table_of_file(one) for one in names.items]
        return _concatenate_tables(Sequence("list", [one for one in tables if one is not None]))


def _call_function_without_script_callbacks(
    name: str, args: tuple[Value, ...], keywords: dict[str, Value]
) -> Value | None:
    """The result of a function of Python or torch that calls none of the script's own; None if it
    is not known.
    """
    if name not in ("list", "len", "tuple") and any(isinstance(one, Table) for one in args):
        # `enumerate(rows)`, `zip(rows, others)`, `tqdm(rows)`
        return call_known_function(name, args, {})
    tensor = call_function_of_tensors(name, args, keywords)
    known = tensor if tensor is not None else call_known_function(name, args, keywords)
    if name in JSON_PARSERS and isinstance(known, Mapping):
        # A row that the script parses: what is read of it is noted.
        return Row(known.entries)
    return known


def _pandas_series(given: Value | None) -> Value | None:
    """`pandas.Series(values)`: a column, or the dictionary that it is made of."""
    if isinstance(given, Sequence):
        return Sequence(COLUMN, list(given.items))
    return given if isinstance(given, Mapping) else None


def _groups_of_match(match: Sequence, name: str, arguments: Arguments) -> Value | None:
    """`match.group(1)` and `match.groups()` of a regex match."""
    if name == "groups":
        return Sequence("tuple", match.items[1:])
    number = constant_of(arguments.args[0]) if arguments.args else 0
    is_group = name == "group" and isinstance(number, int) and 0 <= number < len(match.items)
    return match.items[number] if is_group else None


def _search_with_compiled_pattern(
    call_event: CallEvent, name: str, arguments: Arguments
) -> Value | None:
    """What a compiled regex finds in a text; None if it is not known."""
    flags = regex_flags(call_event.argument(1, "flags"))
    if flags is None or not call_event.args or not arguments.args:
        return None
    return search_pattern(
        name, constant_of(call_event.args[0]), constant_of(arguments.args[0]), flags
    )


def is_loaded_tokenizer(value: Value) -> bool:
    """Is it the tokenizer that a library loaded?"""
    if isinstance(value, Item) and constant_of(value.key) == 1:
        return isinstance(value.base, Result) and value.base.call.named(*PAIR_LOADS)
    return isinstance(value, Result) and value.call.named(*TOKENIZER_LOADS)


def _shuffle_unless_rows(rows: Sequence) -> None:
    """Change the order of a list of texts or numbers, as a shuffle would. The order of a list of
    rows does not matter, and stays.
    """
    if all(isinstance(one, Constant) for one in rows.items):
        # Any order is one that the run may take, but for the one that it had.
        rows.items[:] = [*rows.items[1:], *rows.items[:1]]


def _are_nonempty_texts(plain: list[Any]) -> bool:
    """Are these plain values all texts, and at least one?"""
    return bool(plain) and all(isinstance(one, str) for one in plain)


def _attribute_of_table_column_or_path(base: Value, name: str) -> Value | None:
    """An attribute of a data set, a column or a path; None for any other value."""
    if isinstance(base, Sequence) and is_tensor(base):
        return attribute_of_tensor(base, name)
    if isinstance(base, Table) and name in ("column_names", "features", "columns"):
        return base.column_names()
    is_accessor = (is_frame_column(base) and name == "str") or (
        isinstance(base, Table) and name == "loc"
    )
    if is_accessor:
        return base
    if isinstance(base, Constant) and isinstance(base.value, str):
        return attribute_of_path(base.value, name)
    return None


def _join_texts_or_paths(sign: str, texts: list[str]) -> Value | None:
    """Texts joined by `+`, or the parts of a path by `/`; None if the text is too long to keep."""
    if sign == "/":
        return Constant("/".join(texts))
    return Constant("".join(texts)) if sum(map(len, texts)) <= MAX_TEXT else None


def _part_of_table(table: Table, key: Value) -> Value | None:
    """The rows that a mask selects, else the row or columns of a key; None if they are not known."""
    if is_frame_column(key):
        return rows_selected_by_mask(table, key)
    return row_or_columns_of_table(table, key)


def _test_membership(sign: str, plain: Any, container: Value) -> Constant | None:
    """The result of `in` or `not in` on a plain value; None if it is not known."""
    is_inside = _is_inside(plain, container)
    return None if is_inside is None else Constant(is_inside == (sign == "in"))


def _is_inside(plain: Any, container: Value) -> bool | None:
    """Does a dictionary or list hold a plain value? None if that is not known."""
    if plain is NO_CONSTANT:
        return None
    try:
        if isinstance(container, Mapping):
            is_whole = not container.is_open and container.rest is None
            return True if plain in container.entries else (False if is_whole else None)
        items = constant_of(container)
        return plain in items if isinstance(items, list | tuple) else None
    except TypeError:
        return None  # a list is no key


def _are_tables(value: Mapping) -> bool:
    """Is it a dictionary of data sets?"""
    return bool(value.entries) and all(isinstance(one, Table) for one in value.entries.values())


def _concatenate_tables(tables: Sequence) -> Table | None:
    """The rows of several tables, one after the other."""
    parts = [one for one in tables.items if isinstance(one, Table)]
    if not parts or len(parts) != len(tables.items):
        return None
    return make_table([row for part in parts for row in part.rows], parts[0])


def known_text(value: Value | None) -> str | None:
    """The text that a value is; None if it is none, or not known."""
    if isinstance(value, RenderedChat):
        return value.text
    plain = constant_of(value)
    return plain if isinstance(plain, str) else None


def _rendered_chat_as_text(value: Value) -> Value:
    """A rendered chat as its text, if that is known; any other value as it is."""
    is_known = isinstance(value, RenderedChat) and value.text is not None
    return Constant(known_text(value)) if is_known else value


def _call_method_on_numbers(numbers: Sequence, name: str, arguments: Arguments) -> Value | None:
    """The result of a method of a list of numbers or a tensor; None if it is not known."""
    if name == "extend" and arguments.args and extend_number_list(numbers, arguments.args[0]):
        return Constant(None)
    if is_tensor(numbers):
        return call_method_of_tensor(numbers, name, arguments.args, arguments.keywords)
    return None


def _render_chat_as_text(arguments: Arguments) -> RenderedChat | None:
    """The result of `apply_chat_template(messages, tokenize=False)`; None if it gives ids, or for
    unknown messages.
    """
    messages = arguments.args[0] if arguments.args else arguments.keywords.get("conversation")
    is_text = constant_of(arguments.keywords.get("tokenize")) is False
    if messages is None or not is_text or not isinstance(messages, Sequence):
        return None
    return RenderedChat(messages)
