"""A script loads rows that it saved earlier, although its data file has changed since.

## What it does
Finds scripts that load a folder with `load_from_disk` and write the same folder with `save_to_disk` from local files.
It compares the modification times, and fires if a data file is newer than the saved rows by more than a minute. Scripts
that compare times or hashes themselves, or delete the folder, are not reported.

## Why it is bad
`if os.path.exists(folder)` does not compare the folder with the data. The edited data is not read: the model is trained
on the old rows, with the old labels and the old template.

## Example
```python
# tok_ds/state.json: {}
# rows.jsonl: {"rows": 4, "words": 5, "long": 1, "long_words": 9}
# ages: {"tok_ds/state.json": 7200, "rows.jsonl": 60}
import os

from datasets import load_dataset, load_from_disk

if os.path.exists("tok_ds"):
    rows = load_from_disk("tok_ds")
else:
    rows = load_dataset("json", data_files="rows.jsonl", split="train").map(encode)
    rows.save_to_disk("tok_ds")
```

## Use instead
```python
# tok_ds/state.json: {}
# rows.jsonl: {"rows": 4, "words": 5, "long": 1, "long_words": 9}
# ages: {"tok_ds/state.json": 7200, "rows.jsonl": 60}
import os

from datasets import load_dataset, load_from_disk

if os.path.exists("tok_ds_2"):
    rows = load_from_disk("tok_ds_2")
else:
    rows = load_dataset("json", data_files="rows.jsonl", split="train").map(encode)
    rows.save_to_disk("tok_ds_2")
```

## Fix safety
There is no automatic fix: delete the folder, or write to a new one. The model is then trained on the changed data.

## References
- datasets documentation, "Cache management": `map` knows a changed file, `load_from_disk` reads what is there
"""

from __future__ import annotations

import ast
import datetime
import re
from collections.abc import Iterator
from pathlib import Path

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.possible_values_of_expressions import possible_texts
from truetune.source.parsed_source_file import Module

LOADS = ("datasets.load_from_disk", "datasets.*.load_from_disk")
READS = (
    "datasets.load_dataset",
    "datasets.Dataset.from_json",
    "datasets.Dataset.from_csv",
    "datasets.Dataset.from_parquet",
    "pandas.read_*",
    "open",
)
DATA_SUFFIXES = (".jsonl", ".json", ".csv", ".tsv", ".parquet", ".txt")
SAVED = ("state.json", "dataset_info.json", "dataset_dict.json")
RENEWS_ROWS = re.compile(
    r"getmtime|st_mtime|rmtree|sha1|sha256|md5|hash\(|fingerprint|overwrite|rebuild|force"
)
"""Signs that a script knows when to make its rows again"""
# Chosen, not measured: a script reads a handful of files.
MAX_READS = 40
# Chosen, not measured: a copy or a checkout writes files in any order within a minute.
MIN_SECONDS = 60.0


def _loads_of_saved_rows(module: Module) -> Iterator[tuple[ast.AST, str]]:
    """The calls that load a folder which the same file saves, each with the folder."""
    saved = {
        name
        for call in module.methods("save_to_disk")
        for name in possible_texts(module, call.argument(0, "dataset_path"))
    }
    for call in module.calls(*LOADS):
        names = possible_texts(module, call.argument(0, "dataset_path"))
        yield from ((call.node, name) for name in names if name in saved)


class SavedRowsOlderThanData(SourceRule):
    code = "SRC292"
    fault = Fault.PREPARED_ROWS_OUT_OF_DATE
    symptoms = ("nothing-is-learned", "cached-data")
    severity = "warning"
    looks_at = CodePlaces("folders of rows that a script saves and loads", _loads_of_saved_rows)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        if RENEWS_ROWS.search(module.text):
            return
        for node, name in _loads_of_saved_rows(module):
            saved = _saving_time_of_rows(module, name)
            latest = (
                max(_data_files_with_times(module), default=None) if saved is not None else None
            )
            if saved is None or latest is None or latest[0] < saved + MIN_SECONDS:
                continue
            changed, file = latest
            yield self.finding(
                f"the rows in {name} were saved before {file.name} changed: load_from_disk reads the old rows",
                f"delete {name}, or use another folder in load_from_disk and save_to_disk, and train again; without"
                " these two calls, datasets' own cache (load_dataset, map) notices changed files",
                evidence=[
                    f"rows saved: {_format_time(saved)}",
                    f"data changed: {_format_time(changed)}",
                ],
                cases=[case_of_node(module, node), Case("the data", file=str(file))],
            )
            return


def _saving_time_of_rows(module: Module, name: str) -> float | None:
    """When the rows of a folder were saved; None where it holds none."""
    for base in (Path(module.path).parent, Path()):
        folder = base / name
        files = [folder / one for one in SAVED] + [folder / "train" / one for one in SAVED]
        times = [time for time in map(_modification_time, files) if time is not None]
        if times:
            return max(times)
    return None


def _data_files_with_times(module: Module) -> Iterator[tuple[float, Path]]:
    """The local files of data that a script reads, each with the time of its last change."""
    folder = Path(module.path).parent
    for count, call in enumerate(module.calls(*READS)):
        if count >= MAX_READS:
            return
        for part in ast.walk(call.node):
            for name in possible_texts(module, part) if isinstance(part, ast.expr) else ():
                if not name.endswith(DATA_SUFFIXES):
                    continue
                time = _modification_time(folder / name)
                if time is not None:
                    yield time, folder / name


def _modification_time(path: Path) -> float | None:
    """When a file changed last; None where it is not there."""
    try:
        return path.stat().st_mtime if path.is_file() else None
    except (OSError, ValueError):
        return None


def _format_time(seconds: float) -> str:
    """A time as messages write it."""
    return datetime.datetime.fromtimestamp(seconds).isoformat(" ", "minutes")
