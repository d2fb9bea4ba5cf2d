"""Reads the settings files beside a script (YAML, JSON, TOML) as expressions that rules can follow
like code.

How it works: a call that reads settings (`yaml.safe_load(open(path))`, `OmegaConf.load(path)`, `tomllib.loads(text)`),
or the parameter that Hydra fills, stands for a dictionary literal made of the file. Its nodes have the places of that
file: a rule that shows where a value is written names the line there, and no fix touches the script.

The trade-off: a script may be run with another file than the one that lies beside it. The file counts where its path
stands in the code. One of YAML also counts where it is the only one that the code names, or the only one in the
script's folder; JSON holds rows as often as settings, so there no file is guessed. Else nothing is known. Values with
interpolations (`${...}`), and files that Hydra puts together, stay unknown.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import yaml

from truetune.errors import DataError
from truetune.parsing.input_limits import SETTINGS, InputLimitError
from truetune.parsing.parse_toml_within_limits import parse_toml
from truetune.parsing.parse_yaml_within_limits import YamlError, parse_yaml
from truetune.parsing.read_files_within_limits import read_bytes_within_limit
from truetune.source.name_bindings_in_scopes import Scope, Scopes

if TYPE_CHECKING:
    from truetune.source.data_flow import DataFlow

READING_PACKAGES = frozenset(("yaml", "omegaconf", "hydra", "json", "tomllib", "tomli", "toml"))
ARGUMENT_FILES = {"parse_json_file": (".json",), "parse_yaml_file": (".yaml", ".yml")}
"""Methods of HfArgumentParser that read the arguments of a training, and the endings of their files"""
ARGUMENTS_KEY = "output_dir"
"""A key of each file of such arguments: they have no default for it in most releases"""
YAML_READERS = ("yaml.safe_load", "yaml.load", "yaml.full_load", "omegaconf.OmegaConf.load")
NAMED_FILE_READERS = {
    "json.load": (".json",),
    "json.loads": (".json",),
    "tomllib.load": (".toml",),
    "tomllib.loads": (".toml",),
    "tomli.load": (".toml",),
    "tomli.loads": (".toml",),
    "toml.load": (".toml",),
    "toml.loads": (".toml",),
}
"""Readers of files that count by their path alone, with the endings that they read"""
YAML_SUFFIXES = (".yaml", ".yml")
JOINING_CALLS = ("os.path.join",)
TOML_SECTION = re.compile(r"\s*\[\[?\s*([\w.\"' -]+?)\s*\]\]?")
TOML_KEY = re.compile(r"\s*([\w\"'-]+)\s*=")
GIVES_ITS_ARGUMENT = ("omegaconf.OmegaConf.to_container", "omegaconf.OmegaConf.create")
"""Functions that give back the settings that they are given, as another kind of object"""
OPENING_CALLS = ("open", "pathlib.Path", "io.open")
OPENING_METHODS = ("open", "read", "read_text", "read_bytes", "resolve", "expanduser")
HYDRA_MAIN = "hydra.main"
YAML_NAME = re.compile(r"(?<![\w./-])[\w./-]+\.ya?ml\b")
NO_SETTINGS = re.compile(r"compose|workflow|^\.|^environment|^conda|^mkdocs|^(?:azure|gitlab|ci)\b")
"""Names of YAML files that other programs read"""
OPEN_VALUE = re.compile(r"\$\{|^\?\?\?$")
"""A value of OmegaConf that is filled later"""
MAX_FOLDERS_UP = 2
"""Folders above the script's, of which one is the folder that the script is started in. Chosen, not measured: scripts
lie in the root of a project, in a folder of it, or in one of its package"""
MAX_STEPS = 6
"""Calls and names around a path"""


class SettingsText(NamedTuple):
    """A file of settings that a script reads."""

    path: str
    text: str


class SettingsFiles:
    """The files of settings that some scripts read, each read once."""

    def __init__(self, scopes: Scopes, paths: Mapping[Scope, str]) -> None:
        """`paths`: the scope of each script, and its path."""
        self._scopes = scopes
        self._paths = paths
        self._literals: dict[Path, ast.Dict | None] = {}
        self._home_of_scope: dict[Scope, SettingsText] = {}
        self._named: list[str] | None = None

    @cached_property
    def do_scripts_import_settings_reader(self) -> bool:
        """Does any of the scripts import a package that reads settings: YAML, JSON, TOML or Hydra?"""
        imported = [
            alias.name
            for node in self._scopes.order
            if isinstance(node, ast.Import)
            for alias in node.names
        ]
        imported += [
            node.module or "" for node in self._scopes.order if isinstance(node, ast.ImportFrom)
        ]
        return any(name.partition(".")[0] in READING_PACKAGES for name in imported)

    def settings_file_of_node(self, node: ast.AST) -> SettingsText | None:
        """The settings file that a node was made from; None for a node of a script."""
        if not self._home_of_scope:
            return None
        scope = self._scopes.of.get(node)
        return None if scope is None else self._home_of_scope.get(scope)

    def settings_read_by_call(self, flow: DataFlow, call: ast.Call) -> ast.expr | None:
        """The settings that a call reads from a file, or passes on; None for any other call."""
        name = flow.name(call.func) if self.do_scripts_import_settings_reader else None
        if not call.args or name is None:
            return None
        if name in GIVES_ITS_ARGUMENT:
            return call.args[0]
        if name in NAMED_FILE_READERS:
            named = _path_of_open_call(flow, call.args[0])
            if named is None or not self._paths.get(self._scopes.of[call].enclosing_file_scope):
                return None
            file = _find_in_folder_or_above(
                self._script_folder_of_node(call), named, NAMED_FILE_READERS[name]
            )
            return None if file is None else self._file_as_dict_literal(file, call)
        if name not in YAML_READERS:
            return None
        path = self._find_file_read_by_call(call, _path_of_open_call(flow, call.args[0]))
        return None if path is None else self._file_as_dict_literal(path, call)

    def settings_given_by_hydra(self, flow: DataFlow, function: ast.AST) -> ast.expr | None:
        """The settings that Hydra gives a function; None if it is none of Hydra's, or they have
        several parts.
        """
        for decorator in (
            getattr(function, "decorator_list", ())
            if self.do_scripts_import_settings_reader
            else ()
        ):
            if not isinstance(decorator, ast.Call) or flow.name(decorator.func) != HYDRA_MAIN:
                continue
            keywords = flow.call(decorator).keywords
            folder = flow.value(keywords.get("config_path"))
            name = flow.value(keywords.get("config_name"))
            if not isinstance(folder, str) or not isinstance(name, str):
                return None
            file = (
                self._script_folder_of_node(decorator)
                / folder
                / f"{name.removesuffix('.yaml')}.yaml"
            )
            literal = self._file_as_dict_literal(file, decorator) if file.is_file() else None
            # A list of defaults names files that this one is put together with.
            is_whole = literal is not None and all(
                getattr(key, "value", None) != "defaults" for key in literal.keys
            )
            return literal if is_whole else None
        return None

    def arguments_read_by_parser(
        self, flow: DataFlow, call: ast.Call, method: str
    ) -> ast.Dict | None:
        """The arguments of a training that a method of HfArgumentParser reads from a file; None if
        the file is not known.

        A path from the command line is not known: then the only file beside the script that holds such arguments is
        meant, for no file of rows has their keys.
        """
        if not call.args and not call.keywords:
            return None
        if not self._paths.get(self._scopes.of[call].enclosing_file_scope):
            return None
        folder = self._script_folder_of_node(call)
        node = call.args[0] if call.args else call.keywords[0].value
        named = _path_of_open_call(flow, node)
        endings = ARGUMENT_FILES[method]
        if named is not None:
            file = _find_in_folder_or_above(folder, named, endings)
            return None if file is None else self._file_as_dict_literal(file, call)
        literals = (
            self._file_as_dict_literal(file, call)
            for file in _files_with_training_arguments(folder, endings)
        )
        found = [literal for literal in literals if literal is not None]
        return found[0] if len(found) == 1 else None

    def _script_folder_of_node(self, node: ast.AST) -> Path:
        """The folder of the script that a node stands in."""
        return Path(self._paths.get(self._scopes.of[node].enclosing_file_scope, "")).parent

    def _find_file_read_by_call(self, call: ast.Call, path: str | None) -> Path | None:
        """The file that a call reads: of that path, else the only one that may be meant."""
        if not self._paths.get(self._scopes.of[call].enclosing_file_scope):
            return None
        folder = self._script_folder_of_node(call)
        if path is not None:
            return _find_in_folder_or_above(folder, path)
        named = {
            str(file): file
            for name in self._yaml_file_names_in_scripts()
            if (file := _find_in_folder_or_above(folder, name)) is not None
        }
        if len(named) == 1:
            return next(iter(named.values()))
        beside = _yaml_settings_in_folder(folder) if not named else []
        return beside[0] if len(beside) == 1 else None

    def _yaml_file_names_in_scripts(self) -> list[str]:
        """The names of YAML files in the texts of the scripts: defaults of options, and docstrings."""
        if self._named is None:
            texts = (
                node.value
                for node in self._scopes.order
                if isinstance(node, ast.Constant) and isinstance(node.value, str)
            )
            self._named = [name for text in texts for name in YAML_NAME.findall(text)]
        return self._named

    def _file_as_dict_literal(self, path: Path, reader: ast.AST) -> ast.Dict | None:
        """The content of a settings file as a dictionary literal whose nodes the scopes know; None
        if it holds no dictionary.
        """
        if path not in self._literals:
            self._literals[path] = None
            try:
                text = read_bytes_within_limit(path, SETTINGS).decode("utf-8", "replace")
                literal = _parse_settings_as_expression(text, path.suffix)
            except (OSError, ValueError, InputLimitError, DataError, YamlError):
                return None
            if isinstance(literal, ast.Dict):
                self._literals[path] = self._add_scope_of_file(path, text, literal, reader)
        return self._literals[path]

    def _add_scope_of_file(
        self, path: Path, text: str, literal: ast.Dict, reader: ast.AST
    ) -> ast.Dict:
        """Give the dictionary of a file a scope of its own, so that what scripts write to it is
        found whatever their order.
        """
        scope = Scope(literal, None)
        self._home_of_scope[scope] = SettingsText(str(path), text)
        for node in ast.walk(literal):
            self._scopes.of[node] = scope
            self._scopes.arms[node] = ()
            for child in ast.iter_child_nodes(node):
                self._scopes.parent[child] = node
        self._scopes.parent[literal] = reader
        return literal


def _path_of_open_call(flow: DataFlow, node: ast.AST | None) -> str | None:
    """The path that is opened by `path`, `open(path)`, `Path(path).read_text()` or `f.read()`; None
    if it is not known.
    """
    for _ in range(MAX_STEPS):
        value = flow.value(node)
        if isinstance(value, str):
            return value
        origins = flow.origins(node) if node is not None else ()
        if len(origins) != 1:
            return None
        if isinstance(origins[0].node, ast.BinOp):
            return _path_joined_by_slash(flow, origins[0].node)
        if not isinstance(origins[0].node, ast.Call):
            return None
        call = flow.call(origins[0].node)
        if call.method in OPENING_METHODS:
            node = call.receiver
        elif call.named(*JOINING_CALLS):
            return _join_path_parts_after_script_folder(flow, call.args)
        elif call.named(*OPENING_CALLS) and len(call.args) > 0:
            node = call.args[0]
        else:
            return None
    return None


def _path_joined_by_slash(flow: DataFlow, node: ast.BinOp) -> str | None:
    """The path of `ROOT / "settings" / "run.toml"`; None if the expression is no such path."""
    parts: list[ast.expr] = []
    left: ast.expr = node
    while isinstance(left, ast.BinOp) and isinstance(left.op, ast.Div):
        parts.insert(0, left.right)
        left = left.left
    return _join_path_parts_after_script_folder(flow, [left, *parts]) if parts else None


def _join_path_parts_after_script_folder(flow: DataFlow, parts: Sequence[ast.expr]) -> str | None:
    """A path of its parts. A first part that comes from `__file__` is left out: the folders around the script are
    tried anyway."""
    first, *others = parts
    texts = [flow.value(one) for one in others]
    if not others or not all(isinstance(one, str) for one in texts):
        return None
    root = flow.value(first)
    if isinstance(root, str):
        return "/".join([root, *map(str, texts)])
    return "/".join(map(str, texts)) if _is_folder_of_script_or_above(flow, first) else None


def _is_folder_of_script_or_above(flow: DataFlow, node: ast.expr) -> bool:
    """Is it the folder of the script, or one above it?"""
    return any(
        isinstance(part, ast.Name) and part.id == "__file__"
        for origin in flow.origins(node)
        for part in ast.walk(origin.node)
    )


def _parse_settings_as_expression(text: str, suffix: str) -> ast.expr:
    """The settings of a file as an expression. Raises ValueError, InputLimitError and what the readers raise."""
    if suffix == ".toml":
        return _expression_of_toml(parse_toml(text), _lines_of_toml_keys(text), ())
    # JSON is YAML, too, but for tabs before values, which a file of settings seldom has.
    document = parse_yaml(text)
    return _expression_of_yaml(document.value, document.node)


def _lines_of_toml_keys(text: str) -> dict[tuple[str, ...], int]:
    """Path of a key -> the line that sets it, by the sections above it."""
    lines: dict[tuple[str, ...], int] = {}
    section: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), 1):
        begin = TOML_SECTION.match(line)
        key = TOML_KEY.match(line)
        if begin is not None:
            section = tuple(part.strip("\"' ") for part in begin[1].split("."))
        elif key is not None:
            lines.setdefault((*section, key[1].strip("\"'")), number)
    return lines


def _expression_of_toml(
    value: Any, lines: Mapping[tuple[str, ...], int], path: tuple[str, ...]
) -> ast.expr:
    """A value of TOML as the expression that a script would write, at its line."""
    made: ast.expr
    if isinstance(value, dict):
        made = ast.Dict(
            keys=[ast.Constant(key) for key in value],
            values=[_expression_of_toml(one, lines, (*path, key)) for key, one in value.items()],
        )
    elif isinstance(value, list):
        parts = [_expression_of_toml(one, lines, path) for one in value]
        made = ast.List(elts=parts, ctx=ast.Load())
    else:
        made = ast.Constant(value)
    place = lines.get(path, 1)
    for node in (made, *(made.keys if isinstance(made, ast.Dict) else ())):
        if node is not None:
            node.lineno = node.end_lineno = place
            node.col_offset = node.end_col_offset = 0
    return made


def _find_in_folder_or_above(
    folder: Path, name: str, suffixes: tuple[str, ...] = YAML_SUFFIXES
) -> Path | None:
    """The file of that path, from the script's folder or one of those above it, in which the script may be started."""
    for _ in range(MAX_FOLDERS_UP + 1):
        path = folder / name
        try:
            if path.suffix in suffixes and path.is_file():
                return path
        except (OSError, ValueError):
            return None
        folder = folder / ".."
    return None


def _yaml_settings_in_folder(folder: Path) -> list[Path]:
    """The YAML files of a folder that may hold settings of a script."""
    try:
        files = sorted(path for path in folder.iterdir() if path.suffix in YAML_SUFFIXES)
    except OSError:
        return []
    return [path for path in files if not NO_SETTINGS.search(path.name)]


def _files_with_training_arguments(folder: Path, endings: tuple[str, ...]) -> list[Path]:
    """The files of a folder that hold the arguments of a training, by their text."""
    try:
        files = sorted(path for path in folder.iterdir() if path.suffix in endings)
        return [path for path in files if ARGUMENTS_KEY in _read_settings_text_if_small(path)]
    except OSError:
        return []


def _read_settings_text_if_small(path: Path) -> str:
    """The text of a file of settings; empty where it is larger than such files are."""
    try:
        return read_bytes_within_limit(path, SETTINGS).decode("utf-8", "replace")
    except (InputLimitError, DataError):
        return ""


def _expression_of_yaml(value: Any, node: yaml.Node | None) -> ast.expr:
    """A YAML value as the expression that a script would write, at its place in the file."""
    made: ast.expr
    if isinstance(value, dict):
        nodes = dict(_keys_and_value_nodes(node))
        made = ast.Dict(
            keys=[_expression_placed_at_yaml_node(ast.Constant(key), node) for key in value],
            values=[_expression_of_yaml(one, nodes.get(key, node)) for key, one in value.items()],
        )
    elif isinstance(value, list):
        items = node.value if isinstance(node, yaml.SequenceNode) else []
        parts = [items[number] if number < len(items) else node for number in range(len(value))]
        made = ast.List(
            elts=[_expression_of_yaml(one, part) for one, part in zip(value, parts, strict=True)],
            ctx=ast.Load(),
        )
    elif isinstance(value, str) and OPEN_VALUE.search(value):
        # An f-string without parts: no rule takes it for a constant.
        made = ast.JoinedStr(values=[])
    else:
        made = ast.Constant(value)
    return _expression_placed_at_yaml_node(made, node)


def _keys_and_value_nodes(node: yaml.Node | None) -> Iterator[tuple[str, yaml.Node]]:
    """The keys of a mapping, each with the node of its value."""
    if isinstance(node, yaml.MappingNode):
        yield from ((key.value, value) for key, value in node.value)


def _expression_placed_at_yaml_node(expression: ast.expr, node: yaml.Node | None) -> ast.expr:
    """The expression, with the position of a YAML node."""
    begin = node.start_mark if node is not None else None
    end = node.end_mark if node is not None else None
    expression.lineno, expression.col_offset = (begin.line + 1, begin.column) if begin else (1, 0)
    is_line = end is not None and begin is not None and end.line == begin.line
    expression.end_lineno = expression.lineno
    expression.end_col_offset = end.column if is_line and end is not None else expression.col_offset
    return expression
