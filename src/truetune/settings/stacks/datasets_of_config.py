"""Finds the data sets that a config names: which are here, and by which format and columns they are
read.

A run has one format and one map, as `RunSpec` has. Data sets of another form than the first are left out with a note:
rows that are read by the wrong columns would give findings on texts that nobody trains.
"""

from __future__ import annotations

import glob
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Any, NamedTuple

from truetune.settings.row_formats import NO_COLUMN
from truetune.settings.run_spec import FormatName
from truetune.settings.stacks.config_draft import ConfigDraft
from truetune.settings.stacks.read_columns_of_local_dataset import columns_of_first_row

FILE_BUILDERS = frozenset(("json", "jsonl", "parquet", "csv", "arrow", "text", "pandas", "xml"))
"""Builders of `datasets` that stand where the name of a data set would."""


UNREAD_SUFFIXES = frozenset((".txt", ".xml", ".pkl", ".py", ".tar"))
"""Endings of files that hold rows for others, but not for truetune"""
OTHER_NAMES = {"system": ("system_prompt",)}
"""Names by which rows call a column that a framework may leave unread; `data.column_names` reads these too"""


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
    unread: frozenset[str] = frozenset()
    """Columns, by truetune's names, that the framework does not read, though truetune would"""


def local_dataset_files(
    draft: ConfigDraft, name: str, data_files: Any = None, data_dir: Any = None
) -> tuple[str, ...]:
    """The local files of `load_dataset(name, data_files=...)`.

    Args:
        draft: of the config; its folder is where relative paths are looked for.
        name: of the data set, a folder, a file, or a builder of `datasets`.
        data_files: one file, a list, or files by split.
        data_dir: the folder below `name`.

    Returns:
        None of them where one is not on this machine: part of a data set would be judged as the whole.
    """
    if data_files is not None:
        wanted = _data_file_names(data_files)
        # Of a data set of the hub, the files stand below its name.
        if name not in FILE_BUILDERS:
            wanted = [f"{name.rstrip('/')}/{file}" for file in wanted]
    elif data_dir is not None:
        wanted = [str(data_dir) if name in FILE_BUILDERS else f"{name}/{data_dir}"]
    elif name in FILE_BUILDERS:
        return ()
    else:
        wanted = [name]
    paths = [_find_local_path(draft, file) for file in wanted]
    return tuple(path for path in paths if path) if all(paths) else ()


def _data_file_names(data_files: Any) -> list[str]:
    """The files that `data_files` names, over all splits."""
    by_split = data_files.values() if isinstance(data_files, dict) else [data_files]
    files: list[str] = []
    for of_split in by_split:
        files += map(str, of_split if isinstance(of_split, list) else [of_split])
    return files


def _find_local_path(draft: ConfigDraft, name: str) -> str | None:
    """The file, folder or pattern on this machine; None where nothing of that name is here."""
    # A URL may hold `?` and is no pattern.
    if "://" not in name and any(sign in name for sign in "*?["):
        folder, _, pattern = name.rpartition("/")
        found = draft.find(folder or ".")
        if found is None or not glob.glob(str(found / pattern)):
            return None
        return str(found / pattern)
    found = draft.find(name)
    return str(found) if found is not None else None


def _reason_if_unreadable(paths: tuple[str, ...]) -> str:
    """Why truetune does not read these files; empty where it does."""
    suffixes = {PurePath(path).suffix for path in paths} & UNREAD_SUFFIXES
    if suffixes:
        return f"truetune reads no {', '.join(sorted(suffixes))} files"
    return "its rows are encoded already" if "input_ids" in columns_of_first_row(paths) else ""


def set_datasets_of_draft(
    draft: ConfigDraft, sets: Iterable[ConfigDataset], *keys: str, field: str = "data"
) -> None:
    """Make the data sets that are here, and of one form, the run's data; say which are not.

    Args:
        draft: of the config; gets the data, their format and map, and a note for each data set that is left out.
        sets: all that the config names.
        keys: the config's keys that name them.
        field: `data` or `eval_data`.
    """
    sets = list(map(_dataset_with_reason_if_unreadable, sets))
    here = [dataset for dataset in sets if dataset.paths and not dataset.why_not]
    form = _format_and_map_of_field(draft, here, field)
    taken = [dataset for dataset in here if _format_and_map_of_dataset(dataset) == form]
    if taken:
        draft.put(field, tuple(path for dataset in taken for path in dataset.paths), *keys)
        if field == "data":
            _put_format_and_map(draft, form, taken)
    _note_why_datasets_left_out(draft, sets, here, taken)
    _put_left_out_names_among_others(
        draft, [dataset.name for dataset in sets if dataset not in taken]
    )


def _put_format_and_map(
    draft: ConfigDraft,
    form: tuple[FormatName | None, dict[str, str]],
    taken: Sequence[ConfigDataset],
) -> None:
    """Put the format of the run's data into the draft, with the map of their columns."""
    format_name, columns = form
    draft.put("format", format_name)
    draft.put("map", {**columns, **_map_columns_that_framework_ignores(taken)} or None)


def _dataset_with_reason_if_unreadable(dataset: ConfigDataset) -> ConfigDataset:
    """The data set with the reason why its files cannot be read, if there is one."""
    return dataset._replace(why_not=dataset.why_not or _reason_if_unreadable(dataset.paths))


def _format_and_map_of_field(
    draft: ConfigDraft, here: Sequence[ConfigDataset], field: str
) -> tuple[Any, dict[str, str]]:
    """The one format and map that the data of a field are read by.

    A run has one of them: rows of the evaluation are read as those of the training are, else as the first data set is.
    """
    if field == "eval_data" and "data" in draft.fields:
        columns = draft.fields.get("map", {})
        return draft.fields.get("format"), {
            ours: column for ours, column in columns.items() if column
        }
    return _format_and_map_of_dataset(here[0]) if here else (None, {})


def _format_and_map_of_dataset(dataset: ConfigDataset) -> tuple[FormatName | None, dict[str, str]]:
    """The format and the map, which all data sets of a run share."""
    return dataset.format, dict(dataset.map)


def _map_columns_that_framework_ignores(datasets: Sequence[ConfigDataset]) -> dict[str, str]:
    """A map for the columns that rows have and the framework reads from none of these data sets."""
    unread = frozenset.intersection(*(dataset.unread for dataset in datasets))
    if not unread:
        return {}
    columns = {name for dataset in datasets for name in columns_of_first_row(dataset.paths)}
    return {
        ours: NO_COLUMN
        for ours in sorted(unread)
        if not columns.isdisjoint((ours, *OTHER_NAMES.get(ours, ())))
    }


def _put_left_out_names_among_others(draft: ConfigDraft, names: Sequence[str]) -> None:
    """Keep the data sets that are not looked at among the other settings, so that a report can name them."""
    if names:
        other = draft.fields.setdefault("training.other", {})
        other.setdefault("datasets", []).extend(names)


def _note_why_datasets_left_out(
    draft: ConfigDraft,
    sets: Iterable[ConfigDataset],
    here: Sequence[ConfigDataset],
    taken: Sequence[ConfigDataset],
) -> None:
    """Say of each data set that is not looked at why: nothing is dropped in silence."""
    absent = [dataset.name for dataset in sets if not dataset.paths]
    mixed = [dataset.name for dataset in here if dataset not in taken]
    if absent:
        draft.notes.append(
            f"not looked at, because they are not on this machine: {', '.join(absent)}"
        )
    draft.notes += [
        f"{dataset.name}: not looked at: {dataset.why_not}"
        for dataset in sets
        if dataset.paths and dataset.why_not
    ]
    if mixed:
        draft.notes.append(
            f"{', '.join(mixed)}: not looked at: the columns are not those of {here[0].name}"
        )
