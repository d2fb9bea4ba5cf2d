"""The symbolic run of a script with the rows of its files in hand.

How it works: as the run of `truetune.source.symbolic_execution`, but files of rows are read, loops over lists that are
known run once for each item, and options are as a command gives them, or by default. So what a script makes of its
rows is known as text, as far as nothing but the script and its files decides it. Nothing is executed.

The trade-off: where no tokenizer is at hand, special tokens are empty texts. A text that the chat template renders is
kept as the conversation that it renders (`RenderedChat`), so that rules and encoders see its turns.
"""

from __future__ import annotations

import ast
import time
from dataclasses import dataclass
from glob import has_magic
from pathlib import Path
from typing import Any

from truetune.data.script_rows.frame_columns import (
    call_column,
    is_column,
    operate_on_columns,
    rows_where,
)
from truetune.data.script_rows.known_functions import (
    MATCH,
    call_known_function,
    flags_of,
    format_text,
    search_pattern,
    slice_text,
)
from truetune.data.script_rows.path_texts import attribute_of_path, path_of_method
from truetune.data.script_rows.row_files import OpenFile, RowFiles
from truetune.data.script_rows.row_table import (
    COLUMN,
    Row,
    Table,
    add_column,
    change_table,
    item_of_table,
    make_table,
    table_of_columns,
    table_of_values,
)
from truetune.data.script_rows.script_tokenizer import (
    ChatIds,
    ScriptTokenizer,
    encode_call,
    encode_chat,
    encode_text,
)
from truetune.data.script_rows.token_lists import (
    call_tensor,
    compare_tensor,
    extend_numbers,
    join_numbers,
    make_tensor,
    repeat_list,
    set_items,
)
from truetune.errors import TruetuneError
from truetune.parsing import InputLimitError
from truetune.parsing.parse_yaml_within_limits import parse_yaml
from truetune.source.module import Module
from truetune.source.option_defaults import option_given_to
from truetune.source.symbolic_execution.constants import constant_of
from truetune.source.symbolic_execution.containers import plain_key, to_value
from truetune.source.symbolic_execution.interpreter import (
    Arguments,
    Interpreter,
    LimitReached,
)
from truetune.source.symbolic_execution.trace import CallEvent
from truetune.source.symbolic_execution.values import (
    NO_CONSTANT,
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
    Value,
)

MAX_STEPS = 4_000_000
"""Statements and expressions of one run: about twelve seconds. A row takes some hundred"""
MAX_SECONDS = 10.0
"""Of processor time, for one run: what a step costs depends on the texts. By the clock, a busy machine
would end other runs than an idle one, and the verdicts would differ"""
MAX_STEPS_WITHOUT_FILES = 50_000
"""Steps of a run that has read no file: a game or simulation for rewards, whose rows are nowhere at hand"""
MAX_TEXT = 1_000_000
"""Characters of a text that is put together"""
SPECIAL_TOKENS = ("eos_token", "bos_token", "pad_token", "unk_token")
TOKENIZER_METHODS = ("apply_chat_template", "encode", "convert_tokens_to_ids")
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
    """What the template writes; None where no tokenizer is at hand"""


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
            tokenizer: The one that it loads, where it is at hand.
            keeps_chats: Keep a text that the template renders as its conversation; else it is a text like any other.
        """
        super().__init__(entry)
        self.files = files
        self._keeps_chats = keeps_chats
        self._tokenizer = tokenizer
        self._deadline = time.process_time() + MAX_SECONDS

    def call_method(self, instance: Value, name: str, args: tuple[Value, ...]) -> Value | None:
        """What a method of an object of the script gives; None where its class has none of that name."""
        method = self._attribute(instance, name, None)
        return self.call_with(method, args) if isinstance(method, Function) else None

    def call_with(
        self, function: Value, args: tuple[Value, ...], named: dict[str, Value] | None = None
    ) -> Value:
        """What a function of the script gives on these arguments."""
        place = function.node or self._entry.tree
        return self.call(function, Arguments(args, dict(named or {})), place, self._entry)

    # Limits

    def _count_step(self) -> None:
        super()._count_step()
        # The clock is asked seldom: it costs more than a step.
        if self._steps % 1_000 != 0:
            return
        has_no_rows = self._steps >= MAX_STEPS_WITHOUT_FILES and not self.files.read
        if has_no_rows or time.process_time() > self._deadline:
            raise LimitReached

    # Loops over what is known

    def _items_of(self, iterable: Value) -> list[Value] | None:
        if isinstance(iterable, OpenFile):
            iterable = self.files.text_lines(iterable.path)
        if isinstance(iterable, Sequence) and not iterable.is_open:
            return list(iterable.items)
        if isinstance(iterable, Row):
            self.files.note_read(iterable)
        if isinstance(iterable, Mapping) and not iterable.is_open and iterable.rest is None:
            return [Constant(key) for key in iterable.entries]
        return super()._items_of(iterable)

    def _is_in_loop(self) -> bool:
        """Does it run inside a loop whose passes are not known? What a list gets there is not known either."""
        frames = () if self._frame is None else self._frame.around()
        return any(
            frame.kind in ("loop", "comprehension")
            and (frame.value is None or not self._has_known_items(frame.value))
            for frame in frames
        )

    def _has_known_items(self, iterable: Value) -> bool:
        """Are the passes of a loop over it known? Asked at each `append`: the lines of a file are not read again."""
        if isinstance(iterable, OpenFile):
            return iterable.path in self.files.read
        if isinstance(iterable, Sequence) and not iterable.is_open:
            return True
        return self._items_of(iterable) is not None

    def _run_body(self, function: Function, scope: Scope) -> Value:
        value = super()._run_body(function, scope)
        is_generator = scope.yielded and isinstance(value, Sequence)
        if is_generator and isinstance(value, Sequence) and not self._is_in_loop():
            # A generator gives its items in order; only loops that are not known would add others.
            value.is_open = any(isinstance(one, Opaque) for one in scope.yielded)
        return value

    def _bind_name(
        self, name: str, value: Value, scope: Scope, node: ast.AST, *, is_augmented: bool = False
    ) -> None:
        home = scope
        if name in scope.global_names:
            while home.parent is not None and (home is scope or name not in home.names):
                home = home.parent
        # No event: rows would make millions of them.
        self._write(home.names, name, value)

    def _keep(self, value: Value) -> Value:
        return value

    # Options have what a command gives, or their defaults

    def evaluate(self, node: ast.expr, scope: Scope) -> Value:
        value = super().evaluate(node, scope)
        return self._value_of_option(value) if isinstance(value, Option) else value

    def _value_of_option(self, option: Option) -> Value:
        """What a command beside the script gives for an option; else its default, where it has one."""
        given = option_given_to(self._entry.path, option.name)
        if given is not None:
            return Constant(given.value)
        return option if option.default is None else option.default

    def _event(
        self,
        names: tuple[str, ...],
        method: str | None,
        receiver: Value | None,
        given: Arguments,
        node: ast.AST,
        home: Module,
    ) -> CallEvent:
        for value in (*given.args, *given.keywords.values()):
            if isinstance(value, Row):
                # What a library makes of a whole row is not known: it may read any column.
                self.files.note_read(value)
        return super()._event(names, method, receiver, given, node, home)

    # Operators, attributes, items

    def _operate(self, sign: str, operands: tuple[Value, ...], node: ast.AST) -> Value:
        known = self._operate_on_known(sign, operands)
        return super()._operate(sign, operands, node) if known is None else known

    def _operate_on_known(self, sign: str, operands: tuple[Value, ...]) -> Value | None:
        """Operators that the plain run leaves out: long texts, paths, and what a template rendered."""
        if sign in ("+", "format"):
            chat = self._rendered_chat_in(operands)
            if chat is not None:
                return chat
            operands = tuple(_as_text(one) for one in operands)
        if any(map(is_column, operands)):
            return operate_on_columns(sign, operands)
        plain = [constant_of(one) for one in operands]
        if sign in ("+", "format", "/") and _are_texts(plain):
            return _joined_texts(sign, plain)
        compared = compare_tensor(sign, operands)
        if compared is not None:
            return compared
        if sign == "*":
            return repeat_list(operands[0], operands[1])
        if sign in ("in", "not in"):
            holds = _is_inside(plain[0], operands[1])
            return None if holds is None else Constant(holds == (sign == "in"))
        return None

    def _join_lists(self, left: Sequence, right: Sequence, node: ast.BinOp) -> Sequence:
        joined = join_numbers(left, right)
        return super()._join_lists(left, right, node) if joined is None else joined

    def _rendered_chat_in(self, operands: tuple[Value, ...]) -> RenderedChat | None:
        """The rendered chat to which nothing but an EOS is added, which trainers see to themselves."""
        chats = [one for one in operands if isinstance(one, RenderedChat)]
        if not chats:
            return None
        others = [constant_of(one) for one in operands if one is not chats[0]]
        return chats[0] if all(one in ("", self._eos(), "\n") for one in others) else None

    def _eos(self) -> str:
        """The text of the EOS token; empty where no tokenizer is at hand."""
        return "" if self._tokenizer is None else self._tokenizer.special.get("eos_token", "")

    def _attribute(self, base: Value, name: str, node: ast.AST | None) -> Value:
        known = _attribute_of_known(base, name)
        if known is not None:
            return known
        value = super()._attribute(base, name, node)
        is_unset = isinstance(value, Opaque) and isinstance(base, Opaque)
        if not is_unset or name.removesuffix("_id") not in SPECIAL_TOKENS:
            return value
        if self._tokenizer is None:
            return value if name.endswith("_id") else Constant("")
        return self._special_token(base, name) or value

    def _special_token(self, base: Value, name: str) -> Value | None:
        """A special token of the tokenizer, or its id; None where it has none."""
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
        if isinstance(base, Row):
            self.files.note_read(base, plain_key(key))
        if isinstance(base, ChatIds) and constant_of(key) == "input_ids":
            return Sequence("list", base.items)
        text = constant_of(base)
        if isinstance(text, str) and isinstance(key, Slice):
            part = slice_text(text, key)
            if part is not None:
                return part
        if isinstance(base, Table):
            self._note_columns_read(base, key)
            known = rows_where(base, key) if is_column(key) else item_of_table(base, key)
            if known is not None:
                return known
        return super()._item(base, key, node)

    def _note_columns_read(self, table: Table, key: Value) -> None:
        """The script takes a column out of a data set. Columns that are chosen by a list are not read by that."""
        name = constant_of(key)
        if isinstance(name, str) and table.rows:
            self.files.note_read(table.rows[0], name)

    def _arguments(self, node: ast.Call, scope: Scope) -> Arguments:
        for keyword in node.keywords:
            if keyword.arg is None and isinstance(keyword.value, ast.Name):
                unpacked = self.evaluate(keyword.value, scope)
                if isinstance(unpacked, Row):
                    self.files.note_read(unpacked)
        return super()._arguments(node, scope)

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
        if isinstance(base, Table):
            changed = add_column(base, constant_of(key), value)
            base.items[:] = changed.items if changed else []
            base.is_open = base.is_open or changed is None
            return
        if isinstance(base, Sequence) and not base.is_open and set_items(base, key, value):
            return
        super()._set_item(base, key, value, scope, node, is_augmented=is_augmented)

    # Calls

    def _call_method(
        self, receiver: Value, name: str, given: Arguments, node: ast.AST, home: Module
    ) -> Value:
        known = self._call_known_method(receiver, name, given)
        if known is not None:
            return known
        return super()._call_method(receiver, name, given, node, home)

    def _call_known_method(self, receiver: Value, name: str, given: Arguments) -> Value | None:
        """A method of a table, a file, a text or a tokenizer; None where its result is not known."""
        if isinstance(receiver, Table):
            return self._call_table(receiver, name, given)
        if isinstance(receiver, Row):
            # `get`, `pop`, `items`, ...: what they give holds the column's text, or that of all columns.
            self.files.note_read(receiver, plain_key(given.args[0]) if given.args else None)
        if isinstance(receiver, Mapping) and _are_tables(receiver):
            return self._call_tables(receiver, name, given)
        if isinstance(receiver, OpenFile):
            return self._read_file(receiver.path, name)
        return self._call_value(receiver, name, given)

    def _call_value(self, receiver: Value, name: str, given: Arguments) -> Value | None:
        """A method of a text, a list, a pattern or a tokenizer; None where its result is not known."""
        if isinstance(receiver, RenderedChat) and name in ("strip", "rstrip", "lstrip"):
            return receiver
        if isinstance(receiver, Constant) and isinstance(receiver.value, str):
            return self._call_text(receiver.value, name, given)
        if isinstance(receiver, Opaque) and name in TOKENIZER_METHODS:
            return self._call_tokenizer(name, given)
        if isinstance(receiver, Result) and receiver.call.named("re.compile"):
            return _search_compiled(receiver.call, name, given)
        return self._call_list(receiver, name, given) if isinstance(receiver, Sequence) else None

    def _call_list(self, receiver: Sequence, name: str, given: Arguments) -> Value | None:
        """A method of a match, a column, or a list of numbers."""
        if receiver.kind == MATCH:
            return _part_of_match(receiver, name, given)
        if receiver.kind == COLUMN:
            return call_column(receiver, name, given.args, self.call_with)
        return _call_numbers(receiver, name, given.args)

    def _call_tokenizer(self, name: str, given: Arguments) -> Value | None:
        """A method of the tokenizer; None where its result is not known."""
        if name == "apply_chat_template" and self._keeps_chats:
            chat = _rendered_chat(given)
            if chat is not None and self._tokenizer is not None:
                chat.text = plain_text(encode_chat(self._tokenizer, given.args, given.keywords))
            return chat
        if self._tokenizer is None:
            return None
        if name == "apply_chat_template":
            return encode_chat(self._tokenizer, given.args, given.keywords)
        if name == "encode":
            return encode_text(self._tokenizer, given.args, given.keywords)
        token = constant_of(given.args[0]) if given.args else None
        number = self._tokenizer.id_of(token) if isinstance(token, str) else None
        return None if number is None else Constant(number)

    def call(self, function: Value, given: Arguments, node: ast.AST, home: Module) -> Value:
        if self._tokenizer is not None and is_tokenizer(function):
            encoded = encode_call(self._tokenizer, given.args, given.keywords)
            if encoded is not None:
                return encoded
        return super().call(function, given, node, home)

    def _call_table(self, table: Table, name: str, given: Arguments) -> Value | None:
        """A method of a data set or a frame."""
        if name in ("apply", "progress_apply"):
            return self._applied(table, given)
        if name == "assign":
            return self._with_assigned(table, given)
        made = change_table(table, name, given.args, given.keywords, self.call_with)
        return made

    def _applied(self, table: Table, given: Arguments) -> Value | None:
        """`frame.apply(function, axis=1)`: a column of what the function gives, or a frame where it gives rows."""
        if not given.args or constant_of(given.keywords.get("axis")) not in (1, "columns"):
            return None
        results = [self.call_with(given.args[0], (row,)) for row in table.rows]
        if results and all(isinstance(one, Mapping) for one in results):
            places = [row.place for row in table.rows if row.place is not None]
            return table_of_values(Sequence("list", list(results)), places)
        return Sequence(COLUMN, list(results))

    def _with_assigned(self, table: Table, given: Arguments) -> Value | None:
        """`frame.assign(label=...)`: the frame with more columns."""
        made: Table | None = table
        for name, value in given.keywords.items():
            if made is None:
                return None
            is_function = isinstance(value, Function | Partial)
            made = add_column(made, name, self.call_with(value, (made,)) if is_function else value)
        return made

    def _call_tables(self, tables: Mapping, name: str, given: Arguments) -> Value | None:
        """A method of a dictionary of data sets, which does the same to each."""
        changed: dict[Any, Value] = {}
        for split, table in tables.entries.items():
            made = self._call_table(table, name, given) if isinstance(table, Table) else None
            if made is None:
                return None
            changed[split] = made
        return Mapping(changed)

    def _read_file(self, path: Path, method: str) -> Value | None:
        """`read`, `readlines` and the like of an open file."""
        if method in ("readlines", "__iter__"):
            return self.files.text_lines(path)
        if method in ("read", "read_text"):
            lines = self.files.text_lines(path)
            plain = constant_of(lines)
            return Constant("".join(plain)) if isinstance(plain, list) else None
        return None

    def _call_text(self, text: str, name: str, given: Arguments) -> Value | None:
        """A method of a text that the plain run leaves out: formats, and files whose path it is."""
        if name == "format":
            return format_text(text, given.args, given.keywords)
        other = path_of_method(text, name, [constant_of(one) for one in given.args])
        if other is not None:
            return other
        if name in ("glob", "rglob"):
            return self._files_below(text, name, given)
        path = self.files.find(text) if name in ("open", "read_text", "exists", "is_file") else None
        if path is None:
            return None
        if name == "open":
            return OpenFile(path)
        if name in ("exists", "is_file"):
            return Constant(True)
        return self._read_file(path, "read")

    def _files_below(self, folder: str, method: str, given: Arguments) -> Value | None:
        """`Path(folder).glob(pattern)`."""
        pattern = constant_of(given.args[0]) if given.args else None
        if not isinstance(pattern, str):
            return None
        below = f"**/{pattern}" if method == "rglob" else pattern
        return self._names_matching(f"{folder}/{below}")

    def _names_matching(self, pattern: Any) -> Value | None:
        """The list of the files that a pattern fits; None where there are none."""
        names = self.files.matching(pattern) if isinstance(pattern, str) else []
        return Sequence("list", [Constant(one) for one in names]) if names else None

    def _call_library(self, name: str, given: Arguments, node: ast.AST, home: Module) -> Value:
        known = self._call_reader(name, given)
        if known is None:
            known = self._call_on_values(name, given)
        return super()._call_library(name, given, node, home) if known is None else known

    def _call_reader(self, name: str, given: Arguments) -> Value | None:
        """A function that reads files, or makes a data set; None for any other."""
        first = given.args[0] if given.args else None
        read = self._call_file_reader(name, first or given.keywords.get("file"))
        return self._call_dataset_maker(name, first, given) if read is None else read

    def _call_file_reader(self, name: str, first: Value | None) -> Value | None:
        """A function that opens or reads a file."""
        if name in OPENERS:
            path = self.files.find(constant_of(first))
            return None if path is None else OpenFile(path)
        if name in FILE_READERS:
            return self._table_of_file(first)
        if name in YAML_PARSERS and first is not None:
            return self._yaml_document(first)
        if name == "glob.glob":
            return self._names_matching(constant_of(first))
        return self._parse_opened(name, first.path) if isinstance(first, OpenFile) else None

    def _parse_opened(self, name: str, path: Path) -> Value | None:
        """`json.load` and `csv.DictReader` of a file that the script opened."""
        if name == "json.load":
            return self.files.document(path) or self.files.table(path)
        return self.files.table(path) if name == "csv.DictReader" else None

    def _call_dataset_maker(self, name: str, first: Value | None, given: Arguments) -> Value | None:
        """A function that makes a data set of rows."""
        if name == "datasets.load_dataset":
            return self._loaded(given)
        if name in TABLES_OF_VALUES:
            return self._table_of_given(
                first or given.keywords.get("mapping") or given.keywords.get("data")
            )
        if name == "pandas.Series":
            return _series_of(first)
        if name == "datasets.Dataset.from_dict" and first is not None:
            return table_of_columns(first, self.files.places_of(first))
        if name == "datasets.DatasetDict" and isinstance(first, Mapping):
            return first
        if name == "datasets.concatenate_datasets" and isinstance(first, Sequence):
            return _concatenated(first)
        if name == "datasets.Dataset.from_generator":
            return self._generated(given)
        return None

    def _table_of_given(self, rows: Value | None) -> Table | None:
        """A table of a list of rows, or of a dictionary of columns."""
        if rows is None:
            return None
        places = self.files.places_of(rows)
        return table_of_values(rows, places) or table_of_columns(rows, places)

    def _yaml_document(self, given: Value) -> Value | None:
        """Settings that a script reads from YAML, of an open file or a text."""
        if isinstance(given, OpenFile):
            given = self._read_file(given.path, "read") or given
        text = constant_of(given)
        try:
            return to_value(parse_yaml(text).value) if isinstance(text, str) else None
        except (InputLimitError, ValueError, TruetuneError):
            return None

    def _call_on_values(self, name: str, given: Arguments) -> Value | None:
        """A function of Python on values that are known."""
        if name in ("sorted", "max", "min") and "key" in given.keywords and given.args:
            return self._ordered(name, given)
        if name in ("map", "filter") and len(given.args) == 2:
            return self._mapped_list(name, given.args[0], given.args[1])
        args = given.args
        if name in SHUFFLES and args and isinstance(args[0], Sequence):
            _shuffle(args[0])
            return Constant(None)
        if args and isinstance(args[0], OpenFile):
            args = (self.files.text_lines(args[0].path), *args[1:])
        return _call_plain_function(name, args, given.keywords)

    def _ordered(self, name: str, given: Arguments) -> Value | None:
        """`sorted`, `max` and `min` of items by a function of the script."""
        items = self._items_of(given.args[0])
        function = given.keywords["key"]
        if not items or not isinstance(function, Function | Partial):
            return None
        keys = [constant_of(self.call_with(function, (one,))) for one in items]
        if any(key is NO_CONSTANT for key in keys):
            return None
        is_reversed = constant_of(given.keywords.get("reverse")) is True
        try:
            order = sorted(range(len(items)), key=lambda place: keys[place], reverse=is_reversed)
        except TypeError:
            return None
        if name == "sorted":
            return Sequence("list", [items[place] for place in order])
        # Of equal items Python takes the first one.
        best = keys[order[0]] if name == "min" else keys[order[-1]]
        return items[keys.index(best)]

    def _mapped_list(self, name: str, function: Value, items: Value) -> Value | None:
        """`map(function, items)` and `filter(function, items)` of Python."""
        known = self._items_of(items)
        if known is None or not isinstance(function, Function | Partial):
            return None
        given = [self.call_with(function, (one,)) for one in known]
        if name == "map":
            return Sequence("list", given)
        verdicts = [constant_of(one) for one in given]
        if any(verdict is NO_CONSTANT for verdict in verdicts):
            return None
        kept = [one for one, verdict in zip(known, verdicts, strict=True) if verdict]
        return Sequence("list", kept)

    def _generated(self, given: Arguments) -> Value | None:
        """`Dataset.from_generator(function, gen_kwargs={...})`."""
        if not given.args:
            return None
        named = given.keywords.get("gen_kwargs")
        keywords = (
            {str(key): one for key, one in named.entries.items()}
            if isinstance(named, Mapping)
            else {}
        )
        rows = self.call_with(given.args[0], (), keywords)
        return table_of_values(rows, self.files.places_of(rows))

    def _table_of_file(self, name: Value | None) -> Table | None:
        """The rows of a file that a script names."""
        if isinstance(name, OpenFile):
            return self.files.table(name.path)
        path = self.files.find(constant_of(name))
        return None if path is None else self.files.table(path)

    def _loaded(self, given: Arguments) -> Value | None:
        """`load_dataset("json", data_files=...)`; None for what is not a file beside the script."""
        if not given.args or constant_of(given.args[0]) not in LOCAL_FORMATS:
            return None
        files = given.keywords.get("data_files")
        by_split = files.entries if isinstance(files, Mapping) else {NAME_OF_SPLIT: files}
        tables: dict[Any, Value] = {}
        for split, name in by_split.items():
            table = self._table_of_files(name)
            if table is None:
                return None
            tables[split] = table
        wanted = constant_of(given.keywords.get("split"))
        if wanted is NO_CONSTANT or wanted is None:
            return Mapping(tables)
        # Of "train[:90%]" the split alone counts: which rows are left out changes none of the others.
        split, part, _ = str(wanted).partition("[")
        chosen = tables.get(split)
        if part and isinstance(chosen, Table):
            chosen.notes.append(f"of the split {wanted} all rows are taken")
        return chosen

    def _table_of_files(self, names: Value | None) -> Table | None:
        """The rows of one file, or of a list of files or a pattern of names, one after the other."""
        pattern = constant_of(names)
        if isinstance(pattern, str) and has_magic(pattern):
            names = Sequence("list", [Constant(name) for name in self.files.matching(pattern)])
        if not isinstance(names, Sequence):
            return self._table_of_file(names)
        tables = [self._table_of_file(one) for one in names.items]
        return _concatenated(Sequence("list", [one for one in tables if one is not None]))


def _call_plain_function(
    name: str, args: tuple[Value, ...], keywords: dict[str, Value]
) -> Value | None:
    """A function of Python or torch that calls none of the script's; None where its result is not known."""
    if name not in ("list", "len", "tuple") and any(isinstance(one, Table) for one in args):
        # `enumerate(rows)`, `zip(rows, others)`, `tqdm(rows)`
        return call_known_function(name, args, {})
    tensor = make_tensor(name, args, keywords)
    known = tensor if tensor is not None else call_known_function(name, args, keywords)
    if name in JSON_PARSERS and isinstance(known, Mapping):
        # A row that the script parses: what is read of it is noted.
        return Row(known.entries)
    return known


def _series_of(given: Value | None) -> Value | None:
    """`pandas.Series(values)`: a column, or the dictionary that it is made of."""
    if isinstance(given, Sequence):
        return Sequence(COLUMN, list(given.items))
    return given if isinstance(given, Mapping) else None


def _part_of_match(match: Sequence, name: str, given: Arguments) -> Value | None:
    """`match.group(1)` and `match.groups()`."""
    if name == "groups":
        return Sequence("tuple", match.items[1:])
    number = constant_of(given.args[0]) if given.args else 0
    is_group = name == "group" and isinstance(number, int) and 0 <= number < len(match.items)
    return match.items[number] if is_group else None


def _search_compiled(made: CallEvent, name: str, given: Arguments) -> Value | None:
    """What a pattern that was compiled before finds in a text."""
    flags = flags_of(made.argument(1, "flags"))
    if flags is None or not made.args or not given.args:
        return None
    return search_pattern(name, constant_of(made.args[0]), constant_of(given.args[0]), flags)


def is_tokenizer(value: Value) -> bool:
    """Is it the tokenizer that a library loaded?"""
    if isinstance(value, Item) and constant_of(value.key) == 1:
        return isinstance(value.base, Result) and value.base.call.named(*PAIR_LOADS)
    return isinstance(value, Result) and value.call.named(*TOKENIZER_LOADS)


def _shuffle(rows: Sequence) -> None:
    """Another order of a list of texts or numbers; of a list of rows the order does not matter."""
    if all(isinstance(one, Constant) for one in rows.items):
        # Any order is one that the run may take, but for the one that it had.
        rows.items[:] = [*rows.items[1:], *rows.items[:1]]


def _are_texts(plain: list[Any]) -> bool:
    """Are these plain values texts, at least one?"""
    return bool(plain) and all(isinstance(one, str) for one in plain)


def _attribute_of_known(base: Value, name: str) -> Value | None:
    """An attribute of a data set, a column or a path; None for any other."""
    if isinstance(base, Table) and name in ("column_names", "features", "columns"):
        return base.column_names()
    is_accessor = (is_column(base) and name == "str") or (isinstance(base, Table) and name == "loc")
    if is_accessor:
        return base
    if isinstance(base, Constant) and isinstance(base.value, str):
        return attribute_of_path(base.value, name)
    return None


def _joined_texts(sign: str, texts: list[str]) -> Value | None:
    """Texts behind one another, or the parts of a path; None where the text is too long to keep."""
    if sign == "/":
        return Constant("/".join(texts))
    return Constant("".join(texts)) if sum(map(len, texts)) <= MAX_TEXT else None


def _is_inside(plain: Any, container: Value) -> bool | None:
    """Does a dictionary or list hold a plain value? None where that is not known."""
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


def _concatenated(tables: Sequence) -> Table | None:
    """The rows of several tables, one after the other."""
    parts = [one for one in tables.items if isinstance(one, Table)]
    if not parts or len(parts) != len(tables.items):
        return None
    return make_table([row for part in parts for row in part.rows], parts[0])


def plain_text(value: Value | None) -> str | None:
    """The text that a value is; None where it is none, or not known."""
    if isinstance(value, RenderedChat):
        return value.text
    plain = constant_of(value)
    return plain if isinstance(plain, str) else None


def _as_text(value: Value) -> Value:
    """A rendered chat as its text, where that is known."""
    is_known = isinstance(value, RenderedChat) and value.text is not None
    return Constant(plain_text(value)) if is_known else value


def _call_numbers(numbers: Sequence, name: str, args: tuple[Value, ...]) -> Value | None:
    """A method of a list of numbers, or of a tensor; None where its result is not known."""
    if name == "extend" and args and extend_numbers(numbers, args[0]):
        return Constant(None)
    return call_tensor(numbers, name, args)


def _rendered_chat(given: Arguments) -> RenderedChat | None:
    """What `apply_chat_template(messages, tokenize=False)` gives; None where it gives ids, or of unknown messages."""
    messages = given.args[0] if given.args else given.keywords.get("conversation")
    is_text = constant_of(given.keywords.get("tokenize")) is False
    if messages is None or not is_text or not isinstance(messages, Sequence):
        return None
    return RenderedChat(messages)
