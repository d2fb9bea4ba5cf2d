"""Reads the data sets of LLaMA-Factory, whose names dataset_info.json explains.

A name that dataset_info.json lacks stops LLaMA-Factory, so it is kept as `missing`; a name whose entry points to a
hub is right and not here. Defaults of columns hold only for an entry without `columns`, as in LLaMA-Factory itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from truetune.errors import SpecError
from truetune.settings import located_document
from truetune.settings.config import SettingLocation
from truetune.settings.run_spec import FormatName
from truetune.settings.stacks.config_draft import ConfigDraft, list_of_names
from truetune.settings.stacks.datasets_of_config import ConfigDataset, set_datasets_of_draft

DATASET_INFO = "dataset_info.json"
ALPACA_COLUMNS = {
    "instruction": "prompt",
    "input": "query",
    "output": "response",
    "history": "history",
}
OPTIONAL_ALPACA_COLUMNS = {"input": "query", "history": "history"}
"""Those that rows of this form need not have"""
SHARED_COLUMNS = {"system": "system", "tools": "tools"}
DEFAULT_COLUMNS = {
    "prompt": "instruction",
    "query": "input",
    "response": "output",
    "messages": "conversations",
}
DEFAULT_TAGS = {
    "role_tag": "from",
    "content_tag": "value",
    "user_tag": "human",
    "assistant_tag": "gpt",
    "observation_tag": "observation",
    "function_tag": "function_call",
    "system_tag": "system",
}
HUB_KEYS = ("hf_hub_url", "ms_hub_url", "om_hub_url", "script_url", "cloud_file_name")
KNOWN_ROLE_TAGS = {
    "user_tag": ("human", "user"),
    "assistant_tag": ("gpt", "assistant"),
    "system_tag": ("system",),
    "observation_tag": ("observation", "tool"),
    "function_tag": ("function_call",),
}
ROLE_OF_TAG = {
    "user_tag": "user",
    "assistant_tag": "assistant",
    "system_tag": "system",
    "observation_tag": "tool",
}
"""Tags whose names become truetune's"""
MEDIA_KEYS = ("images", "videos", "audios")


def read_llama_factory_datasets(draft: ConfigDraft) -> None:
    """Read `dataset` and `eval_dataset` into the draft. Raises SpecError if dataset_info.json is
    broken.
    """
    draft.get("dataset_dir")
    for key, field in (("dataset", "data"), ("eval_dataset", "eval_data")):
        wanted = list_of_names(draft.get(key))
        info, folder = _read_dataset_info_and_folder(draft) if wanted else (None, None)
        set_datasets_of_draft(
            draft,
            [_read_dataset(draft, name, key, info, folder) for name in wanted],
            key,
            field=field,
        )


def _read_dataset_info_and_folder(
    draft: ConfigDraft,
) -> tuple[Mapping[str, Any] | None, Path | None]:
    """The content of dataset_info.json, and its folder; None if it is not here."""
    where = draft.get("dataset_dir")
    folder = draft.find(str(where)) if isinstance(where, str) else None
    if isinstance(where, dict):
        return where, Path(draft.path).parent
    if folder is None or not (folder / DATASET_INFO).is_file():
        draft.notes.append(f"dataset_dir: {where}/{DATASET_INFO} is not here")
        return None, None
    value = located_document.read_located_document(folder / DATASET_INFO).value
    if not isinstance(value, dict):
        raise SpecError(
            f"{folder / DATASET_INFO}: expected data sets by name, found a {type(value).__name__}"
        )
    return value, folder


def _read_dataset(
    draft: ConfigDraft, name: str, key: str, info: Mapping[str, Any] | None, folder: Path | None
) -> ConfigDataset:
    """One data set by its name: its files, format and columns, or why it is not read."""
    if info is None or folder is None:
        return ConfigDataset(name, ())
    about = info.get(name)
    if not isinstance(about, dict):
        draft.missing.append(
            draft.where.get(key, SettingLocation(draft.path, 1, key))._replace(key=name)
        )
        return ConfigDataset(name, ())
    if any(hub in about for hub in HUB_KEYS):
        return ConfigDataset(name, ())
    path = folder / str(about.get("file_name"))
    if draft.get("stage") == "pt":
        draft.notes += _notes_on_parts_unread_in_pretraining(name, about)
    made = _format_and_map(about, str(draft.get("stage")))
    paths = (str(path),) if path.exists() else ()
    return (
        ConfigDataset(name, paths, why_not=made)
        if isinstance(made, str)
        else ConfigDataset(name, paths, *made, unread=_columns_left_out_by_entry(about))
    )


def _columns_left_out_by_entry(about: Mapping[str, Any]) -> frozenset[str]:
    """The columns that an entry does not name, and which LLaMA-Factory leaves out then, whatever rows hold."""
    columns = about.get("columns")
    mapped = columns if isinstance(columns, dict) else DEFAULT_COLUMNS
    known = {**OPTIONAL_ALPACA_COLUMNS, **SHARED_COLUMNS}
    return frozenset(ours for ours, theirs in known.items() if not mapped.get(theirs))


def _notes_on_parts_unread_in_pretraining(name: str, about: Mapping[str, Any]) -> list[str]:
    """What `stage: pt` does not read of a data set: the response, and all messages but the first."""
    columns = about.get("columns")
    if about.get("formatting", "alpaca") != "alpaca":
        return [f"stage: pt trains the first message of each row of {name}, and no answer"]
    mapped = columns if isinstance(columns, dict) else DEFAULT_COLUMNS
    response = mapped.get("response")
    if not response:
        return []
    return [
        f"stage: pt trains the text of `{mapped.get('prompt')}` of {name} alone: `{response}`, which is mapped as the"
        " response, is not read (stage: sft trains it; for plain text write both into one column)"
    ]


def _format_and_map(
    about: Mapping[str, Any], stage: str
) -> tuple[FormatName, dict[str, str]] | str:
    """The format and the map of a data set.

    Args:
        about: its entry of dataset_info.json.
        stage: of the training; `pt` takes plain text.

    Returns:
        Or why truetune does not read it.
    """
    columns = about.get("columns")
    columns = columns if isinstance(columns, dict) else None

    def column_of(key: str) -> str | None:
        # An entry with `columns` has no other columns: LLaMA-Factory's defaults count only where there is none.
        return DEFAULT_COLUMNS.get(key) if columns is None else columns.get(key)

    extra = {ours: column_of(theirs) for ours, theirs in SHARED_COLUMNS.items()}
    extra |= {name: column_of(name) for name in MEDIA_KEYS}
    label_format: FormatName | None = None
    if column_of("kto_tag"):
        label_format = "kto"
        extra["label"] = column_of("kto_tag")
    if about.get("ranking"):
        label_format = "preference"
        extra |= {side: column_of(side) for side in ("chosen", "rejected")}
    if about.get("formatting", "alpaca") == "alpaca":
        columns_of_row = dict(
            zip(ALPACA_COLUMNS, map(column_of, ALPACA_COLUMNS.values()), strict=True)
        )
        if stage == "pt":
            # Its processor reads the prompt alone, and no response, be it mapped.
            return "text", _map_of_columns_entry_names({"text": columns_of_row["instruction"]})
        return label_format or "alpaca", _map_of_columns_entry_names({**columns_of_row, **extra})
    return _format_and_map_of_messages(about, column_of("messages"), label_format, extra)


def _format_and_map_of_messages(
    about: Mapping[str, Any],
    messages: str | None,
    label_format: FormatName | None,
    extra: Mapping[str, str | None],
) -> tuple[FormatName, dict[str, str]] | str:
    """The format and the map of a data set of messages.

    Args:
        about: the entry of dataset_info.json.
        messages: the column of the messages.
        label_format: preference or kto, where the rows are of these.
        extra: the other columns, by truetune's names.
    """
    entry_tags = about.get("tags")
    tags = {**DEFAULT_TAGS, **(entry_tags if isinstance(entry_tags, dict) else {})}
    if not all(map(_is_plain_name, tags.values())):
        return "its tags are no plain names"
    keys = tags["role_tag"], tags["content_tag"]
    has_own_names = any(tags[tag] not in known for tag, known in KNOWN_ROLE_TAGS.items())
    form: FormatName = "messages"
    inside: dict[str, str] = {}
    if keys not in (("from", "value"), ("role", "content")) or has_own_names:
        inside = _names_in_messages(tags)
    elif keys == ("from", "value"):
        form = "sharegpt"
    ours = "messages" if form == "messages" and label_format is None else "conversations"
    return label_format or form, {
        **_map_of_columns_entry_names({ours: messages, **extra}),
        **inside,
    }


def _is_plain_name(tag: object) -> bool:
    """Is a tag one name? The map separates names by commas."""
    return isinstance(tag, str) and bool(tag) and "," not in tag


def _names_in_messages(tags: Mapping[str, str]) -> dict[str, str]:
    """The keys of messages and the names of roles that an entry's tags give, by truetune's names."""
    inside = {"message.role": tags["role_tag"], "message.content": tags["content_tag"]}
    inside |= {f"role.{role}": tags[tag] for tag, role in ROLE_OF_TAG.items()}
    # The assistant writes the calls of functions, and they are learned as its answers are.
    inside["role.assistant"] += f",{tags['function_tag']}"
    return inside


def _map_of_columns_entry_names(columns: Mapping[str, str | None]) -> dict[str, str]:
    """The columns that an entry names, as a map."""
    return {ours: str(theirs) for ours, theirs in columns.items() if theirs and theirs != ours}
