"""Module: one Python file, or the code cells of one notebook, parsed, with all that rules ask of
it.

How it works: a Module holds the text of the file, the code in it and its syntax tree. Everything derived (scopes, data
flow, tables of calls) is computed at the first question and kept, since most rules ask of calls by a name that a given
file does not hold. Places go two ways: offsets in the code, and lines of the file, which differ in a notebook.

The trade-off: a file that does not parse is not repaired; it has an empty tree and says where it broke. Of a notebook
only the broken cells are left out, for one cell of pseudocode is usual there.
"""

from __future__ import annotations

import ast
import fnmatch
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from truetune.errors import DataError
from truetune.parsing import InputLimitError
from truetune.parsing.parse_python_within_limits import parse_python
from truetune.settings.release_pins import Pins, pins_of_notebook, pins_of_script
from truetune.source import notebook_code_cells
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.data_flow import DataFlow
from truetune.source.decode_source_and_convert_positions import (
    LineIndex,
    decode_source_with_codec,
    read_source_bytes,
)
from truetune.source.name_bindings_in_scopes import Scope, Scopes
from truetune.source.shorten_qualified_names import spelling_of_variable

if TYPE_CHECKING:
    from truetune.source.group_files_by_imports import Program

N = TypeVar("N", bound=ast.AST)
NEWER_SYNTAX: tuple[tuple[tuple[int, int], re.Pattern[str]], ...] = (
    ((3, 12), re.compile(r"^\s*(?:type\s+\w+.*=|(?:async\s+)?(?:def|class)\s+\w+\[)")),
    ((3, 14), re.compile(r"^\s*except\s+[\w.]+\s*,|\b[tT][rR]?[\"']|\b[rR][tT][\"']")),
    ((3, 15), re.compile(r"^\s*lazy\s+(?:import|from)\b")),
)
"""Forms that an older Python refuses, each with the first that takes it: PEP 695; PEP 758 and 750; PEP 810"""
NESTED_FSTRING = re.compile(r"\b(?:[fF][rR]?|[rR][fF])([\"'])(?:(?!\1).)*\{[^}\n]*(?:\1|\\|#)")
"""An f-string with its own quote, a backslash or a comment in its braces"""
NESTED_FSTRINGS_SINCE = (3, 12)
"""The first Python whose f-strings take their own quotes, backslashes and comments inside (PEP 701)"""


@dataclass(frozen=True, slots=True)
class SyntaxProblem:
    """What could not be parsed."""

    line: int
    """1-based, of `Module.text`"""
    column: int
    reason: str
    newer: bool = False
    """It may be right in a newer Python than the one that runs truetune"""


# Without slots, because `cached_property` keeps its values in the instance's dictionary.
@dataclass(frozen=True)
class Module:
    """Parsed source. Its rules ask `calls`, `methods`, `flow` and `text_of`; see docs/lint.md."""

    path: str
    file_text: str
    """The text of the file: what a fix edits"""
    text: str
    """The code: the same for a .py file; the code cells of a notebook, one after the other, magics blanked"""
    tree: ast.Module
    """Empty where the code does not parse"""
    broken: tuple[SyntaxProblem, ...] = ()
    codec: str = "utf-8"
    cells: tuple[notebook_code_cells.Cell, ...] = field(default=(), repr=False)
    program: Program | None = field(default=None, repr=False, compare=False)
    """The files that it is judged with; None where it is judged alone"""

    @cached_property
    def lines(self) -> LineIndex:
        """The lines of the code."""
        return LineIndex(self.text)

    @cached_property
    def scopes(self) -> Scopes:
        """Its scopes, with those of the files that it is judged with."""
        return Scopes(self.tree) if self.program is None else self.program.scopes

    @cached_property
    def flow(self) -> DataFlow:
        """What its names and expressions stand for, across the files that it is judged with."""
        if self.program is not None:
            return self.program.flow
        return DataFlow(self.scopes, paths={self.scopes.inside[self.tree]: self.path})

    @property
    def self_and_files_run_together(self) -> tuple[Module, ...]:
        """It, and the files that it is judged with whose code runs together with its own."""
        return (self,) if self.program is None else self.program.files_in_same_process(self)

    def mentions(self, *texts: str) -> bool:
        """Does the code of this file, or of a file that runs with it, hold one of these texts?"""
        return any(
            text in module.text for module in self.self_and_files_run_together for text in texts
        )

    def home(self, node: ast.AST) -> Module:
        """The file that a node is in: this one, one that it is judged with, or one of settings that
        it reads.
        """
        settings = self.flow.settings_files.settings_file_of_node(node)
        if settings is not None:
            return Module(
                settings.path, settings.text, settings.text, ast.Module(body=[], type_ignores=[])
            )
        return self if self.program is None else self.program.file_holding_node(node, self)

    @cached_property
    def order(self) -> list[ast.AST]:
        """All nodes of this file in order of the text."""
        # The scopes may be those of a whole group of files, whose nodes stand one file after the other.
        begin, end = self.scopes.nodes_of[self.tree]
        return self.scopes.order[begin:end]

    @cached_property
    def all_calls(self) -> tuple[Call, ...]:
        """Every call, in the order of the text."""
        return tuple(self.flow.call(node) for node in self.nodes(ast.Call))

    @cached_property
    def name_reads(self) -> Mapping[str, list[ast.Name]]:
        """Name -> the nodes where it is read, in the order of the tree; made once."""
        reads: dict[str, list[ast.Name]] = {}
        for node in self.nodes(ast.Name):
            if isinstance(node.ctx, ast.Load):
                reads.setdefault(node.id, []).append(node)
        return reads

    def variable_reads(self) -> Iterator[ast.Name | ast.Attribute]:
        """The nodes where variables are read: names, and attributes of `self`."""
        for node in self.order:
            is_read = isinstance(getattr(node, "ctx", None), ast.Load)
            is_variable = is_read and spelling_of_variable(node) is not None
            if is_variable and isinstance(node, ast.Name | ast.Attribute):
                yield node

    def expressions_added_to_variable(self, variable: ast.expr) -> list[ast.expr]:
        """The expressions added to a list or sum of this name, or to `self.x`, by `+=`, `append` or
        `extend`, in the order of the text.
        """
        key = self._scope_and_name_of_variable(variable)
        return [] if key is None else self._additions_by_variable.get(key, [])

    def _scope_and_name_of_variable(self, node: ast.expr) -> tuple[Scope, str] | None:
        """The scope that holds a name, or the class that holds `self.x`, and how it is written."""
        if isinstance(node, ast.Name):
            return self.scopes.scope_that_binds_name(node), node.id
        name = spelling_of_variable(node)
        owner = self.flow.class_around(node) if name is not None else None
        return None if name is None or owner is None else (self.scopes.inside[owner], name)

    @cached_property
    def _additions_by_variable(self) -> dict[tuple[Scope, str], list[ast.expr]]:
        """Scope and name -> what is added to it; made once, for `expressions_added_to_variable`."""
        additions: dict[tuple[Scope, str], list[ast.expr]] = {}
        for added in self.nodes(ast.AugAssign):
            key = self._scope_and_name_of_variable(added.target)
            if key is not None:
                additions.setdefault(key, []).append(added.value)
        for call in self.methods("append", "extend"):
            key = (
                self._scope_and_name_of_variable(call.receiver)
                if call.receiver is not None
                else None
            )
            if key is not None and call.args:
                additions.setdefault(key, []).append(call.args[0])
        return additions

    def calls(self, *patterns: str) -> Iterator[Call]:
        """The calls of anything with such a qualified name (`transformers.Trainer`,
        `trl.*Trainer`), also through a subclass in the file.
        """
        return self._calls_that_match(self._call_numbers_by_qualified_name, patterns)

    def methods(self, *patterns: str) -> Iterator[Call]:
        """The calls of a method of that name on any object that is no module."""
        return self._calls_that_match(self._call_numbers_by_method_name, patterns)

    @cached_property
    def _call_numbers_by_qualified_name(self) -> dict[str, list[int]]:
        """Qualified name -> the calls of it, by their number in `all_calls`."""
        numbers: dict[str, list[int]] = {}
        for number, call in enumerate(self.all_calls):
            for name in call.names:
                numbers.setdefault(name, []).append(number)
        return numbers

    @cached_property
    def _call_numbers_by_method_name(self) -> dict[str, list[int]]:
        """Method -> the calls of it, by their number in `all_calls`."""
        numbers: dict[str, list[int]] = {}
        for number, call in enumerate(self.all_calls):
            if call.method is not None:
                numbers.setdefault(call.method, []).append(number)
        return numbers

    def is_called_here_or_in_linked_files(self, *patterns: str) -> bool:
        """Does this file, or one that runs with it, call anything with such a name?"""
        return any(True for part in self.self_and_files_run_together for _ in part.calls(*patterns))

    def _calls_that_match(
        self, numbers_by_name: dict[str, list[int]], patterns: tuple[str, ...]
    ) -> Iterator[Call]:
        """The calls whose name matches a pattern. Patterns are compared with each name once, not
        with each call: a long file has few names.
        """
        numbers: set[int] = set()
        for pattern in patterns:
            names = fnmatch.filter(numbers_by_name, pattern) if "*" in pattern else (pattern,)
            for name in names:
                numbers.update(numbers_by_name.get(name, ()))
        # A call with two names that fit is found twice; numbers keep it once and in the order of the text.
        return (self.all_calls[number] for number in sorted(numbers))

    def nodes(self, *kinds: type[N]) -> Iterator[N]:
        """Every node of these kinds, in the order of the text."""
        # Rules ask for one class nearly always, and a table answers that; `ast.stmt` and the like need a search.
        by_type = self._nodes_by_exact_class
        if len(kinds) == 1 and kinds[0] in by_type:
            return iter(by_type[kinds[0]])
        return (node for node in self.order if isinstance(node, kinds))

    @cached_property
    def _nodes_by_exact_class(self) -> dict[type[ast.AST], list[Any]]:
        """The nodes of each class that has no subclass among the nodes; in the order of the text."""
        nodes: dict[type[ast.AST], list[Any]] = {}
        for node in self.order:
            nodes.setdefault(type(node), []).append(node)
        return nodes

    @cached_property
    def this_or_linked_file_imports_unsloth(self) -> bool:
        """Does this file, or one that runs with it, import unsloth? It rewrites TRL's trainers and
        their arguments.
        """
        return any(module.imports_unsloth_itself for module in self.self_and_files_run_together)

    @cached_property
    def imports_unsloth_itself(self) -> bool:
        """Does the file itself import unsloth?"""
        imported = [alias.name for node in self.nodes(ast.Import) for alias in node.names]
        imported += [node.module or "" for node in self.nodes(ast.ImportFrom)]
        return any(name.partition(".")[0] in ("unsloth", "unsloth_zoo") for name in imported)

    def holds(self, node: ast.AST) -> bool:
        """Does a node stand in this file, and not in one that it is judged with?"""
        return any(one is node for one in self.nodes(type(node)))

    def parents(self, node: ast.AST) -> Iterator[ast.AST]:
        """The nodes around this one, from the inside out."""
        parent = self.scopes.parent.get(node)
        while parent is not None:
            yield parent
            parent = self.scopes.parent.get(parent)

    def function_around(self, node: ast.AST) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
        """The innermost function that holds this node; None at the top of a file or of a class."""
        kinds = ast.FunctionDef | ast.AsyncFunctionDef
        return next((one for one in self.parents(node) if isinstance(one, kinds)), None)

    def statement(self, node: ast.AST) -> ast.stmt | None:
        """The innermost statement that holds this node."""
        return next((n for n in (node, *self.parents(node)) if isinstance(n, ast.stmt)), None)

    def span(self, node: ast.AST) -> tuple[int, int]:
        """(start, end) of a node of this file in `text`, in characters, without the parentheses
        around it.
        """
        at = begin_and_end_of_node(node)
        return self.lines.offset(*at[0]), self.lines.offset(*at[1])

    def text_of(self, node: ast.AST) -> str:
        """The source text of a node, of this file or of one that it is judged with."""
        home = self.home(node)
        start, end = home.span(node)
        return home.text[start:end]

    def place(self, node: ast.AST) -> tuple[int, int]:
        """1-based line and column of a node in its file; in a notebook, line and column in the .ipynb file."""
        home = self.home(node)
        return home.line_and_column_in_file(home.span(node)[0])

    def line_and_column_in_file(self, offset: int) -> tuple[int, int]:
        """1-based line and column in the file of a character of the code."""
        return self.file_lines.place(self.offset_in_file(offset))

    def line_and_column_of_syntax_problem(self, broken: SyntaxProblem) -> tuple[int, int]:
        """1-based line and column in the file of code that could not be parsed."""
        line, column = self.line_and_column_in_file(
            self.lines.starts[min(broken.line, len(self.lines)) - 1]
        )
        return line, column + broken.column - 1

    def offset_in_file(self, offset: int) -> int:
        """The offset in the file of a character of the code: the same, except in a notebook."""
        return (
            notebook_code_cells.offset_in_notebook_file(self.cells, offset)
            if self.cells
            else offset
        )

    def describe_cell_and_line_of_node(self, node: ast.AST) -> str | None:
        """The place of a node in a notebook as text, `cell 3, line 2`, counted over code cells;
        None in a script.
        """
        home = self.home(node)
        return (
            notebook_code_cells.describe_cell_and_line(home.cells, home.lines, home.span(node)[0])
            if home.cells
            else None
        )

    @cached_property
    def pins(self) -> Pins:
        """The releases that its own install commands or header ask for, else the requirements around it."""
        if not self.path.endswith(".ipynb"):
            return pins_of_script(self.file_text, self.path)
        cells = (
            (cell.text, self.file_lines.place(cell.spots[0])[0]) for cell in self.cells if cell.text
        )
        return pins_of_notebook(cells, self.path, self.file_text)

    @cached_property
    def examined_place_counts(self) -> dict[str, int]:
        """How many code places of each kind were examined; rules fill it (`checks/examined_code_places.py`)."""
        return {}

    @cached_property
    def file_lines(self) -> LineIndex:
        """The lines of the file."""
        return LineIndex(self.file_text)


def begin_and_end_of_node(node: ast.AST) -> tuple[tuple[int, int], tuple[int, int]]:
    """((line, column), (line, column)) where a node begins and ends; lines from 1, columns in
    bytes. A node without a place of its own (the `for x in y` of a comprehension) is where its
    parts are; line 1 without any.

    A node without a place of its own (the `for x in y` of a comprehension) is where its parts are; line 1 without any.
    """
    if not hasattr(node, "lineno"):
        parts = [
            begin_and_end_of_node(part)
            for part in ast.iter_child_nodes(node)
            if _has_position(part)
        ]
        if not parts:
            return (1, 0), (1, 0)
        return min(begin for begin, _ in parts), max(end for _, end in parts)
    line, column = node.lineno, getattr(node, "col_offset", 0)
    end_line, end_column = getattr(node, "end_lineno", None), getattr(node, "end_col_offset", None)
    return (line, column), (end_line or line, column if end_column is None else end_column)


def _has_position(node: ast.AST) -> bool:
    """Does it, or a part of it, stand at a known place? An empty `ast.arguments` does not."""
    return any(hasattr(part, "lineno") for part in ast.walk(node))


def read_module(path: Path) -> Module:
    """A .py file or .ipynb notebook. Raises DataError where it is no text, too large, or no notebook."""
    text, codec = decode_source_file_with_codec(path)
    return parse_module(text, str(path), codec)


def empty_module_of_unreadable_file(path: str, reason: str) -> Module:
    """A module without code, of a file that could not be read."""
    return Module(
        path, "", "", ast.Module(body=[], type_ignores=[]), (SyntaxProblem(1, 1, reason),)
    )


def decode_source_file_with_codec(path: Path) -> tuple[str, str]:
    """The text of a .py or .ipynb file, and its codec. Raises DataError."""
    data = read_source_bytes(path)
    if path.suffix == ".ipynb":
        try:
            return data.decode("utf-8"), "utf-8"
        except UnicodeDecodeError as error:
            raise DataError(f"{path}: a notebook must be UTF-8 ({error})") from None
    return decode_source_with_codec(data, str(path))


def parse_module(text: str, path: str, codec: str = "utf-8") -> Module:
    """A Module of a text. What does not parse is in `broken`. Raises DataError for a notebook that is no JSON."""
    if not path.endswith(".ipynb"):
        tree, broken = _parse_or_empty_tree(text)
        return Module(path, text, text, tree, broken, codec)
    cells = notebook_code_cells.read_code_cells(text, path)
    parts: list[str] = []
    problems: list[SyntaxProblem] = []
    for cell in cells:
        code, of_cell = _parse_cell_as_python(cell)
        parts.append(code)
        problems += of_cell
    joined = "".join(part + "\n" for part in parts)
    # Parsed again as a whole: cells that parse alone may not do so together (`from __future__` in a later one).
    tree, broken = _parse_or_empty_tree(joined)
    return Module(path, text, joined, tree, (*problems, *broken), codec, cells)


def _parse_cell_as_python(cell: notebook_code_cells.Cell) -> tuple[str, list[SyntaxProblem]]:
    """A cell as Python, as long as the cell; blank with what is wrong where no reading of it parses."""
    broken: tuple[SyntaxProblem, ...] = ()
    for candidate in notebook_code_cells.candidate_readings_of_cell_as_python(cell.text):
        broken = _parse_or_empty_tree(candidate)[1]
        if not broken:
            return candidate, []
    # The last reading is the one that IPython would run, so its error is the one to show.
    problems = [replace(one, line=cell.first_line + one.line - 1) for one in broken]
    return notebook_code_cells.blank_out_text(cell.text), problems


def _may_be_newer_python_syntax(text: str, reason: str, line: int) -> bool:
    """Is what could not be parsed of a form that a newer Python than this one takes?"""
    lines = LineIndex(text)
    written = lines.line(min(line, len(lines)))
    if sys.version_info < NESTED_FSTRINGS_SINCE and (
        reason.startswith("f-string") or NESTED_FSTRING.search(written)
    ):
        return True
    return any(sys.version_info < since and form.search(written) for since, form in NEWER_SYNTAX)


def _parse_or_empty_tree(text: str) -> tuple[ast.Module, tuple[SyntaxProblem, ...]]:
    """The syntax tree of a text; if it does not parse, an empty tree and what is wrong."""
    # The parser may run out of depth or meet a null byte: each is a reason to be shown, never an exception here.
    try:
        return parse_python(text), ()
    except SyntaxError as error:
        reason = error.msg or "syntax error"
        broken = SyntaxProblem(
            error.lineno or 1,
            error.offset or 1,
            reason,
            newer=_may_be_newer_python_syntax(text, reason, error.lineno or 1),
        )
    except InputLimitError as error:
        broken = SyntaxProblem(error.lineno or 1, 1, error.msg)
    except ValueError as error:
        broken = SyntaxProblem(1, 1, f"{type(error).__name__}: {error}")
    return ast.Module(body=[], type_ignores=[]), (broken,)
