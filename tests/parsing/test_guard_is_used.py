"""Nothing but the guard calls a parser."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import truetune

ROOT = Path(truetune.__file__).parent
PARSERS = (
    "json.load", "json.loads", "json.JSONDecoder", "json.decoder", "json.scanner",
    "yaml.load", "yaml.safe_load", "yaml.load_all", "yaml.safe_load_all", "yaml.full_load", "yaml.unsafe_load",
    "yaml.compose", "yaml.compose_all", "yaml.parse", "yaml.scan", "yaml.SafeLoader", "yaml.CSafeLoader",
    "yaml.Loader",
    "tomllib", "tomli", "ast.parse", "ast.literal_eval", "csv", "configparser", "plistlib", "marshal",
    "gzip.open", "gzip.GzipFile", "gzip.decompress", "bz2", "lzma", "zipfile", "tarfile", "shelve",
    "zlib.decompress", "zlib.decompressobj", "zlib.error", "zstandard", "pickle.load", "pickle.loads",
    "dill", "joblib",
    "xml", "html.parser", "lxml", "simplejson", "orjson", "ujson", "toml", "ruamel", "pandas",
    "pyarrow.json", "pyarrow.csv", "pyarrow.ipc.open_file", "pyarrow.ipc.open_stream", "pyarrow.feather",
    "pyarrow.parquet.ParquetFile", "pyarrow.parquet.read_table", "pyarrow.parquet.read_schema",
    "pyarrow.parquet.read_metadata", "pyarrow.parquet.ParquetDataset", "pyarrow.dataset.dataset",
    "safetensors.safe_open",
)  # fmt: skip
LIBRARIES = "|".join(sorted({parser.partition(".")[0] for parser in PARSERS}))
IMPORTS_LIBRARY = re.compile(rf"^\s*(?:import|from)\b.*\b(?:{LIBRARIES})\b", re.MULTILINE)
"""Most of the thousand modules have no such line, and parsing those too takes seconds"""
ALLOWED = {
    (
        "confinement/confined_launcher.py",
        "json.loads",
    ): "orders that truetune gives to its own child",
    (
        "encoding/encoded_folder_on_disk.py",
        "json.loads",
    ): "the manifest that truetune has just made",
    (
        "encoding/encoded_folder_in_object_store.py",
        "json.loads",
    ): "the manifest that truetune has just made",
    ("encoding/encode_shard.py", "json.loads"): "a line that truetune has just written",
    (
        "evaluation/sample_report.py",
        "pyarrow.parquet.read_schema",
    ): "the schema alone, of a file that is to be replaced",
    (
        "encoding/spot_check_encoded_rows.py",
        "pyarrow.parquet.read_table",
    ): "a data set that truetune has just written",
    (
        "encoding/spot_check_encoded_rows.py",
        "pyarrow.ipc.open_stream",
    ): "a data set that truetune has just written",
    (
        "evaluation/training_overlap.py",
        "pyarrow.dataset.dataset",
    ): "a data set that truetune wrote, by its manifest",
    (
        "fixing/parse_json_with_places.py",
        "json.JSONDecoder",
    ): "strings alone, of a text that the guard has read before",
    (
        "fixing/write_fixed_file_and_change_record.py",
        "bz2",
    ): "packs what is written; nothing is read",
    (
        "fixing/write_fixed_file_and_change_record.py",
        "gzip.GzipFile",
    ): "packs what is written; nothing is read",
    (
        "fixing/write_fixed_file_and_change_record.py",
        "lzma",
    ): "packs what is written; nothing is read",
    (
        "fixing/write_fixed_file_and_change_record.py",
        "zstandard",
    ): "packs what is written; nothing is read",
    (
        "fixing/fix_parquet_and_arrow_files.py",
        "pyarrow.ipc.open_file",
    ): "the schema alone, of a file whose rows the guard reads",
    (
        "fixing/fix_parquet_and_arrow_files.py",
        "pyarrow.ipc.open_stream",
    ): "the schema alone, of a file whose rows the guard reads",
    ("probe/forked_process.py", "json.loads"): "what a copy of the same process says",
    ("probe/hooked/sitecustomize.py", "json.loads"): "orders that truetune gives to its own child",
    ("probe/rehearsal_hook.py", "json.loads"): "orders that truetune gives to its own child",
    (
        "probe/run_values_to_json.py",
        "json.loads",
    ): "what was a line before a value of the same process",
    (
        "probe/rehearse_by_memorising_and_reciting.py",
        "json.loads",
    ): "what was a line before a value of the same process",
    (
        "rehearsal/confined_command.py",
        "json.loads",
    ): "notes that the guard of a rehearsal has written",
    (
        "rewards/reward_worker.py",
        "json.loads",
    ): "requests that truetune sends to its own process",
    (
        "rewards/reward_worker.py",
        "ast.parse",
    ): "a file whose code the same process, which is confined, executes",
    (
        "render/template_process.py",
        "json.loads",
    ): "replies of the template process, of a bounded length and depth",
    (
        "render/template_worker.py",
        "pickle.loads",
    ): "requests that truetune sends to its own process",
    (
        "generation/sampling_pass_files.py",
        "pyarrow.parquet.read_schema",
    ): "the schema alone, of a file that is to be replaced",
    ("troubleshooting/signs/sign_rarity.py", "json.loads"): "a file of the package itself",
}


def imported_names(tree: ast.AST) -> dict[str, str]:
    """Name in the module -> what it stands for, `loads` -> `json.loads`."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                found[alias.asname or alias.name.partition(".")[0]] = (
                    alias.name if alias.asname else alias.name.partition(".")[0]
                )
                if not alias.asname:
                    found[alias.name] = alias.name
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                found[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return found


def dotted(node: ast.AST) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (inner := dotted(node.value)):
        return f"{inner}.{node.attr}"
    return None


def parsers_in(text: str) -> Iterator[tuple[int, str]]:
    """(line, parser) of each that a module imports or names."""
    if not IMPORTS_LIBRARY.search(text):
        return
    tree = ast.parse(text)
    names = imported_names(tree)

    def is_parser(name: str) -> str | None:
        return next(
            (parser for parser in PARSERS if name == parser or name.startswith(f"{parser}.")), None
        )

    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if parser := is_parser(alias.name):
                    yield node.lineno, parser
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                if parser := is_parser(f"{node.module}.{alias.name}"):
                    yield node.lineno, parser
        elif isinstance(node, (ast.Attribute, ast.Name)) and (name := dotted(node)):
            first, _, rest = name.partition(".")
            if first in names and (parser := is_parser(f"{names[first]}.{rest}".rstrip("."))):
                yield node.lineno, parser


@pytest.mark.parametrize(
    ("text", "parser"),
    [
        ("import json\njson.loads('1')", "json.loads"),
        ("import json as j\nj.load(open('x'))", "json.load"),
        ("from json import loads as read", "json.loads"),
        ("def f():\n    import yaml\n    return yaml.safe_load('a')", "yaml.safe_load"),
        ("from yaml import CSafeLoader", "yaml.CSafeLoader"),
        ("import csv", "csv"),
        ("from pyarrow import parquet\nparquet.ParquetFile('x')", "pyarrow.parquet.ParquetFile"),
        ("import pyarrow as pa\npa.ipc.open_stream(x)", "pyarrow.ipc.open_stream"),
        ("import ast\nt = map(ast.parse, texts)", "ast.parse"),
    ],
)
def test_a_parser_is_seen(text: str, parser: str) -> None:
    assert parser in {name for _, name in parsers_in(text)}


def test_what_only_writes_is_no_parser() -> None:
    assert not list(
        parsers_in("import json, yaml, gzip\njson.dumps(1); yaml.safe_dump(1); gzip.compress(b'')")
    )


def test_only_the_guard_calls_parsers() -> None:
    found, unused = [], set(ALLOWED)
    for path in sorted(ROOT.rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        if name.startswith("parsing/"):
            continue
        for line, parser in parsers_in(path.read_text(encoding="utf-8")):
            unused.discard((name, parser))
            if (name, parser) not in ALLOWED:
                found.append(f"{name}:{line}: {parser}")
    assert not found, "call truetune.parsing instead:\n" + "\n".join(found)
    assert not unused, "no longer there; take them out of ALLOWED"
