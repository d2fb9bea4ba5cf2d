"""Finds the files that a script's training rows come from, where it makes at most one example of
each row.

What a trainer is given as `train_dataset` is followed back to where rows are read. Steps that leave
rows out (`filter`, `select`, a split) are passed, for the count is an upper bound; a step that may
make more examples of a row (packing by hand, a batched `map` that cuts texts in pieces,
`concatenate_datasets`) ends the search, and nothing is known then.
"""

from __future__ import annotations

import ast
from pathlib import Path

from truetune.checks.source.evidence.possible_values_of_expressions import possible_texts
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

TRAINERS = ("trl.*Trainer", "transformers.*Trainer")
READERS = ("json", "csv", "parquet", "text")
"""Formats of `load_dataset` that read local files"""
KEEPS_ROWS = frozenset(
    (
        "map",
        "filter",
        "select",
        "shuffle",
        "train_test_split",
        "remove_columns",
        "rename_column",
        "rename_columns",
        "select_columns",
        "cast",
        "cast_column",
        "sort",
        "take",
        "skip",
        "shard",
        "with_format",
        "with_transform",
        "set_format",
        "class_encode_column",
        "flatten",
        "unique",
        "dropna",
        "sample",
        "head",
        "drop_duplicates",
        "reset_index",
        "drop",
        "rename",
        "to_dict",
        "to_list",
    )
)
"""Methods of data sets and frames that give at most as many rows as they get"""
OF_ROWS = (
    "datasets.Dataset.from_list",
    "datasets.Dataset.from_pandas",
    "datasets.Dataset.from_dict",
)
OF_FILES = (
    "datasets.Dataset.from_json",
    "datasets.Dataset.from_csv",
    "datasets.Dataset.from_parquet",
    "pandas.read_json",
    "pandas.read_csv",
    "pandas.read_parquet",
    "pandas.read_table",
    "open",
)
PARSERS = ("json.load", "json.loads", "csv.DictReader", "list")
DEPTH = 24
"""Steps that are followed from a trainer to a file"""


def local_row_files_of_only_trainer(module: Module) -> tuple[str, ...]:
    """The local files of the one trainer that the file makes; empty where they are not known."""
    keywords = [call.keywords for call in module.calls(*TRAINERS)]
    train_datasets = [one["train_dataset"] for one in keywords if "train_dataset" in one]
    if len(train_datasets) != 1:
        return ()
    names = _files_of_rows(module, train_datasets[0], 0)
    files = [_path_beside_script_or_command(module, name) for name in names or ()]
    return tuple(dict.fromkeys(path for path in files if path)) if all(files) else ()


def training_row_limit(module: Module) -> int | None:
    """The rows that a step of the code keeps at most, `select(range(64))`; None where one way has
    no such step.
    """
    train_datasets = [call.keywords.get("train_dataset") for call in module.calls(*TRAINERS)]
    return (
        _row_limit_of_expression(module, train_datasets[0], 0)
        if len(train_datasets) == 1 and train_datasets[0] is not None
        else None
    )


def _row_limit_of_expression(module: Module, node: ast.AST, depth: int) -> int | None:
    """The rows that are left of what an expression may be, at most."""
    if depth > DEPTH:
        return None
    limits: list[int] = []
    for origin in module.flow.origins(node):
        whole = origin.node.value if isinstance(origin.node, ast.Subscript) else origin.node
        kept = None if origin.element else _row_limit_of_chain(module, whole, depth + 1)
        if kept is None:
            return None
        limits.append(kept)
    return max(limits, default=None)


def _row_limit_of_chain(module: Module, node: ast.AST, depth: int) -> int | None:
    """The rows that a chain of methods keeps at most: the smallest of its steps."""
    if not isinstance(node, ast.Call):
        return None
    call = module.flow.call(node)
    if call.method not in KEEPS_ROWS or call.receiver is None or _map_may_add_rows(module, call):
        return None
    below = _row_limit_of_expression(module, call.receiver, depth)
    own = _row_limit_of_method(module, call)
    known = [one for one in (below, own) if one is not None]
    return min(known, default=None)


def _row_limit_of_method(module: Module, call: Call) -> int | None:
    """The rows that one method keeps: `select(range(64))`, `take(64)`, `head(64)`."""
    count = call.argument(0, "n") if call.method in ("take", "head") else None
    if call.method == "select":
        indices = call.argument(0, "indices")
        is_range = isinstance(indices, ast.Call) and module.flow.name(indices.func) == "range"
        if isinstance(indices, ast.Call) and is_range and len(indices.args) == 1:
            count = indices.args[0]
    value = module.flow.value(count) if count is not None else None
    return value if isinstance(value, int) and value > 0 else None


def _path_beside_script_or_command(module: Module, name: str) -> str | None:
    """The path of a file that is beside the script, or in the folder that the command is started
    in; None where it is in neither.
    """
    places = (Path(module.path).parent / name, Path(name))
    return next((str(path) for path in places if path.is_file()), None)


def _files_of_rows(module: Module, node: ast.AST, depth: int) -> list[str] | None:
    """The names of the files that rows come from; None where a step is not understood."""
    if depth > DEPTH:
        return None
    file_names: list[str] = []
    for origin in module.flow.origins(node):
        names = None if origin.element else _files_of_expression(module, origin.node, depth + 1)
        if names is None:
            return None
        file_names += names
    return list(dict.fromkeys(file_names)) if len(set(file_names)) == len(file_names) else None


def _files_of_expression(module: Module, node: ast.AST, depth: int) -> list[str] | None:
    """The files that an expression's rows come from; None where a step is not understood."""
    if isinstance(node, ast.Subscript):
        return _files_of_rows(module, node.value, depth)
    if isinstance(node, ast.ListComp) and len(node.generators) == 1:
        return _files_of_rows(module, node.generators[0].iter, depth)
    if isinstance(node, ast.Call):
        return _files_of_call(module, module.flow.call(node), depth)
    return None


def _files_of_call(module: Module, call: Call, depth: int) -> list[str] | None:
    """The files of the rows that a call loads, reads or changes; None where a step is not
    understood.
    """
    if call.named("datasets.load_dataset"):
        return _files_of_load_dataset(module, call)
    if call.named(*OF_FILES):
        return _only_possible_text_as_list(module, call.args[0] if call.args else None)
    if call.named(*OF_ROWS, *PARSERS) and call.args:
        return _files_of_rows(module, call.args[0], depth)
    if call.method in KEEPS_ROWS and call.receiver is not None:
        return (
            None
            if _map_may_add_rows(module, call)
            else _files_of_rows(module, call.receiver, depth)
        )
    if call.method in ("read", "readlines", "splitlines", "read_text", "open") and call.receiver:
        return _files_of_rows(module, call.receiver, depth)
    return None


def _files_of_load_dataset(module: Module, call: Call) -> list[str] | None:
    """The files of `load_dataset`; None for a data set of the hub, or a list of files."""
    texts = possible_texts(module, call.argument(0, "path"))
    files = call.keywords.get("data_files")
    if len(texts) != 1:
        return None
    if files is None:
        return texts
    if texts[0] not in READERS:
        return None
    return _only_possible_text_as_list(module, _files_of_loaded_split(module, call, files))


def _files_of_loaded_split(module: Module, call: Call, files: ast.expr) -> ast.expr | None:
    """What `data_files` names for the split that is loaded."""
    entries, _ = module.flow.dict_entries_and_if_complete(files)
    return entries.get("train") if entries else files


def _only_possible_text_as_list(module: Module, node: ast.expr | None) -> list[str] | None:
    """The one text that an expression may be, as a list; None where it may be several."""
    texts = possible_texts(module, node)
    return texts if len(texts) == 1 else None


def _map_may_add_rows(module: Module, call: Call) -> bool:
    """May a batched `map` give more rows than it got: does its function cut texts, or fill a list
    in two loops?
    """
    if call.method != "map" or module.flow.value(call.keywords.get("batched")) is not True:
        return False
    mapped = call.argument(0, "function")
    function = module.flow.function_that_expression_names(mapped) if mapped is not None else None
    if function is None:
        return True
    return any(_multiplies_rows(part) for part in ast.walk(function))


def _multiplies_rows(node: ast.AST) -> bool:
    """May a node make several rows of one?"""
    if isinstance(node, ast.Call):
        name = ast.unparse(node.func).rpartition(".")[2]
        return (name == "range" and len(node.args) == 3) or name in ("extend", "chain", "sum")
    if isinstance(node, ast.keyword):
        return node.arg in ("return_overflowing_tokens", "stride")
    return isinstance(node, ast.For) and any(
        isinstance(part, ast.For) for body in node.body for part in ast.walk(body)
    )
