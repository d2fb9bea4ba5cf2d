"""Reads the data sets of a torchtune recipe: local files with the format and columns of their builder.

torchtune renders rows with templates of its own tokenizers, so rows are judged by their texts alone. The trade-off: a
run of truetune has one format, so rows are read only where all data sets of the recipe are here and have the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from truetune.settings.run_spec import FormatName
from truetune.settings.stacks.config_draft import ConfigDraft
from truetune.settings.stacks.datasets_of_config import (
    ConfigDataset,
    local_dataset_files,
    set_datasets_of_draft,
)

CHAT_STYLES: Mapping[str, tuple[FormatName, str]] = {
    "openai": ("messages", "messages"),
    "sharegpt": ("sharegpt", "conversations"),
}
"""Conversation style -> truetune's format, and what it calls the column"""
MAPPED_COLUMNS: Mapping[str, tuple[FormatName, Mapping[str, str]]] = {
    "instruct_dataset": ("prompt-completion", {"prompt": "input", "completion": "output"}),
    "alpaca_dataset": ("alpaca", {}),
    "alpaca_cleaned_dataset": ("alpaca", {}),
    "preference_dataset": ("preference", {}),
}
"""Builder -> truetune's format, and its columns by the names that `column_map` maps, where they differ"""
COLUMNS: Mapping[FormatName, tuple[str, ...]] = {
    "prompt-completion": ("prompt", "completion"),
    "alpaca": ("instruction", "input", "output"),
    "preference": ("chosen", "rejected"),
}


def local_files_of_datasets(
    draft: ConfigDraft, datasets: Sequence[Mapping[str, Any]]
) -> tuple[str, ...]:
    """The local files of all data sets; none where one of them is not here, or only a part of it is taken."""
    files: list[str] = []
    for table in datasets:
        found = _local_files(draft, table)
        if not found:
            return ()
        files += found
    return tuple(files)


def read_rows_of_datasets(draft: ConfigDraft, datasets: Sequence[Mapping[str, Any]]) -> None:
    """Make the rows of a recipe's data sets the run's data, where all of them are here and have one format."""
    readable = [_readable_dataset(draft, table) for table in datasets]
    sets = [dataset for dataset in readable if dataset is not None]
    forms = {(dataset.format, tuple(sorted(dataset.map.items()))) for dataset in sets}
    if len(sets) < len(datasets) or len(forms) != 1:
        draft.notes.append("a recipe of torchtune: its rows are not read; name them beside it")
        return
    set_datasets_of_draft(draft, sets, "dataset")
    draft.own_prompt = True


def _local_files(draft: ConfigDraft, table: Mapping[str, Any]) -> tuple[str, ...]:
    """The local files of a data set; none where they are not here, or only a part of them is taken."""
    source = table.get("source")
    # `train[:5%]` takes a part of the rows, and how many is not known before they are read.
    if not isinstance(source, str) or "[" in str(table.get("split", "")):
        return ()
    return local_dataset_files(draft, source, table.get("data_files"), table.get("data_dir"))


def _readable_dataset(draft: ConfigDraft, table: Mapping[str, Any]) -> ConfigDataset | None:
    """A data set with its files, format and columns; None where one of them is not known."""
    files, form = _local_files(draft, table), _format_and_map(table)
    if not files or form is None:
        return None
    return ConfigDataset(str(table.get("source")), files, *form)


def _format_and_map(table: Mapping[str, Any]) -> tuple[FormatName, dict[str, str]] | None:
    """The format of a data set by its builder, with the columns that have other names; None for any other builder."""
    builder = str(table.get("_component_", "")).rpartition(".")[2]
    if builder == "text_completion_dataset":
        return "text", _without_same({"text": str(table.get("column", "text"))})
    if builder == "chat_dataset":
        style = CHAT_STYLES.get(str(table.get("conversation_style")))
        column = str(table.get("conversation_column", style[1] if style else ""))
        return None if style is None else (style[0], _without_same({style[1]: column}))
    if builder not in MAPPED_COLUMNS:
        return None
    name, theirs = MAPPED_COLUMNS[builder]
    given = table.get("column_map")
    mapped = given if isinstance(given, Mapping) else {}
    expected = {ours: theirs.get(ours, ours) for ours in COLUMNS[name]}
    return name, _without_same({ours: str(mapped.get(one, one)) for ours, one in expected.items()})


def _without_same(columns: dict[str, str]) -> dict[str, str]:
    """The map without columns that have truetune's own names."""
    return {ours: column for ours, column in columns.items() if ours != column}
