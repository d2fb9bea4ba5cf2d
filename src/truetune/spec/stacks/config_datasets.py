"""Data sets that a config names: which are here, and how truetune's data room reads them."""

from __future__ import annotations

import glob
from collections.abc import Iterable, Mapping
from pathlib import PurePath
from typing import Any, NamedTuple

from truetune.spec.run_spec import FormatName
from truetune.spec.stacks.config_draft import ConfigDraft
from truetune.spec.stacks.dataset_columns import columns_of_first_row

FILE_BUILDERS = frozenset(("json", "jsonl", "parquet", "csv", "arrow", "text", "pandas", "xml"))
"""Builders of `datasets` that stand where the name of a data set would."""


UNREAD_SUFFIXES = frozenset((".txt", ".xml", ".pkl", ".py", ".tar"))
"""Endings of files that hold rows for others, but not for truetune"""


class ConfigDataset(NamedTuple):
    """One data set of a config."""

    name: str
    """As the config calls it"""
    paths: tuple[str, ...]
    """Where it is; empty where it is not here"""
    format: FormatName | None = None
    map: Mapping[str, str] = {}
    why_not: str = ""
    """Why truetune cannot read it, though it may be here"""


def local_dataset_files(
    draft: ConfigDraft, name: str, data_files: Any = None, data_dir: Any = None
) -> tuple[str, ...]:
    """The local files of `load_dataset(name, data_files=...)`; none where one of them is not here."""
    if data_files is not None:
        by_split = data_files.values() if isinstance(data_files, dict) else [data_files]
        wanted = [
            str(f) for given in by_split for f in (given if isinstance(given, list) else [given])
        ]
        if name not in FILE_BUILDERS:
            wanted = [f"{name.rstrip('/')}/{file}" for file in wanted]
    elif data_dir is not None:
        wanted = [str(data_dir) if name in FILE_BUILDERS else f"{name}/{data_dir}"]
    elif name in FILE_BUILDERS:
        return ()
    else:
        wanted = [name]
    found = [_find_path(draft, file) for file in wanted]
    return tuple(path for path in found if path) if all(found) else ()


def _find_path(draft: ConfigDraft, name: str) -> str | None:
    if "://" not in name and any(sign in name for sign in "*?["):
        folder, _, pattern = name.rpartition("/")
        found = draft.find(folder or ".")
        return (
            str(found / pattern) if found is not None and glob.glob(str(found / pattern)) else None
        )
    found = draft.find(name)
    return str(found) if found is not None else None


def _why_unreadable(paths: tuple[str, ...]) -> str:
    odd = {suffix for path in paths if (suffix := PurePath(path).suffix) in UNREAD_SUFFIXES}
    if odd:
        return f"truetune reads no {', '.join(sorted(odd))} files"
    return "its rows are encoded already" if "input_ids" in columns_of_first_row(paths) else ""


def put_datasets(
    draft: ConfigDraft, sets: Iterable[ConfigDataset], *keys: str, field: str = "data"
) -> None:
    """Make the data sets that are here, and of one form, the run's data; say which are not."""
    sets = [rows._replace(why_not=rows.why_not or _why_unreadable(rows.paths)) for rows in sets]
    absent = [rows for rows in sets if not rows.paths]
    other = [rows for rows in sets if rows.paths and rows.why_not]
    here = [rows for rows in sets if rows.paths and not rows.why_not]
    form = (here[0].format, dict(here[0].map)) if here else (None, {})
    if field == "eval_data" and "data" in draft.fields:
        form = draft.fields.get("format"), draft.fields.get("map", {})
    same = [rows for rows in here if (rows.format, dict(rows.map)) == form]
    mixed = [rows for rows in here if rows not in same]
    if same:
        draft.put(field, tuple(path for rows in same for path in rows.paths), *keys)
    if same and field == "data":
        draft.put("format", form[0])
        draft.put("map", form[1] or None)
    if absent:
        draft.notes.append(
            "not looked at, because they are not on this machine:"
            f" {', '.join(r.name for r in absent)}"
        )
    draft.notes += [f"{rows.name}: not looked at: {rows.why_not}" for rows in other]
    if mixed:
        draft.notes.append(
            f"{', '.join(r.name for r in mixed)}: not looked at: the columns are not those of"
            f" {here[0].name}"
        )
    if left := [rows.name for rows in sets if rows not in same]:
        draft.fields.setdefault("training.other", {}).setdefault("datasets", []).extend(left)
