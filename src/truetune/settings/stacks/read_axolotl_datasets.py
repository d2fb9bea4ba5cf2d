"""Reads the data sets of an Axolotl YAML: entries with a `type`, which names one of its prompt
strategies.

The types whose rows truetune reads become formats. Rows of the type alpaca are looked at as chats, with a note and
`own_prompt`, for Axolotl writes them into a prompt of its own: rules that compare texts with the template are silent.
"""

from __future__ import annotations

from typing import Any

from truetune.errors import SpecError
from truetune.settings.located_document import KeyPath, LocatedDocument
from truetune.settings.run_spec import FormatName
from truetune.settings.stacks.config_draft import ConfigDraft, is_switched_on, location_of_keys
from truetune.settings.stacks.datasets_of_config import (
    ConfigDataset,
    local_dataset_files,
    set_datasets_of_draft,
)
from truetune.settings.stacks.known_keys import load_known_keys

DATASET_KEYS_KEPT = (
    "roles_to_train",
    "train_on_eos",
    "train_on_eot",
    "type",
    "chat_template",
    "message_field_training",
    "message_field_training_detail",
)
"""Of a data set, kept among the other settings"""
DATASET_KEYS = ("datasets", "test_datasets", "pretraining_dataset")
ALPACA_FIELDS = {
    "instruction": "field_instruction",
    "input": "field_input",
    "output": "field_output",
    "system": "field_system",
}
AXOLOTL_ROLES = {"role.user": "human", "role.assistant": "gpt"}
"""Names of roles that Axolotl translates where `roles` is not given"""
PREFERENCE_FIELDS = ("field_chosen", "field_rejected")
PAIR_METHODS = ("dpo", "ipo", "orpo", "simpo")
OWN_TEMPLATES = ("chatml", "llama3", "zephyr", "mistral", "passthrough", "user_defined")
"""Families of Axolotl's strategies for preferences that write their prompts themselves (`chatml.intel`), whatever the
tokenizer's template is. `passthrough` and formats of one's own write what stands in rows and settings"""


def read_axolotl_datasets(draft: ConfigDraft, document: LocatedDocument) -> None:
    """Read `datasets`, `test_datasets` and `pretraining_dataset`, and what of them is learned, into
    the draft.
    """
    first: dict[str, Any] = {}
    for key in DATASET_KEYS:
        entries = _dataset_entries_of_key(draft.get(key))
        for index, entry in enumerate(entries):
            _note_unknown_keys_of_dataset(draft, document, (key, index), entry)
        datasets = [_read_dataset(draft, entry, key == "pretraining_dataset") for entry in entries]
        set_datasets_of_draft(
            draft, datasets, key, field="eval_data" if key == "test_datasets" else "data"
        )
        # A run has one way to learn: Axolotl's own of the first data set stands for all.
        first = first or (entries[0] if entries else {})
    _read_which_tokens_are_learned(draft, first)
    draft.put("history", "single")


def _dataset_entries_of_key(value: Any) -> list[dict[str, Any]]:
    """The data sets of a key: a list, one alone, or a name alone."""
    entries = value if isinstance(value, list) else [value]
    return [
        entry if isinstance(entry, dict) else {"path": entry}
        for entry in (entries if value is not None else [])
    ]


def _note_unknown_keys_of_dataset(
    draft: ConfigDraft, document: LocatedDocument, way: KeyPath, entry: dict[str, Any]
) -> None:
    """Note the keys of a data set that Axolotl does not know.

    Raises:
        SpecError: its path is no text, or two of its fields name one column.
    """
    path = entry.get("path")
    if path is not None and not isinstance(path, str):
        at = location_of_keys(document, (*way, "path"))
        raise SpecError(f"{at.file}:{at.line}: {at.key}: expected a path or a name, found {path!r}")
    known = load_known_keys("axolotl").classes["dataset"]
    draft.odd += [
        location_of_keys(document, (*way, str(name))) for name in entry if str(name) not in known
    ]
    _refuse_same_column_twice(document, way, entry)


def _refuse_same_column_twice(
    document: LocatedDocument, way: KeyPath, item: dict[str, Any]
) -> None:
    """Raises SpecError where two fields of a data set name one column."""
    kind = item.get("type")
    if isinstance(kind, dict):
        way, item = (*way, "type"), kind
    for fields in (tuple(ALPACA_FIELDS.values()), PREFERENCE_FIELDS):
        by_column: dict[str, str] = {}
        for name in fields:
            column = item.get(name)
            if isinstance(column, str) and (other := by_column.setdefault(column, name)) != name:
                at = location_of_keys(document, (*way, name))
                raise SpecError(
                    f"{at.file}:{at.line}: {at.key} and {other} both name the column {column}"
                )


def _read_which_tokens_are_learned(draft: ConfigDraft, item: dict[str, Any]) -> None:
    """Read which tokens of a data set are learned."""
    if is_switched_on(draft.get("train_on_inputs")) or draft.fields.get("format") == "text":
        draft.put("learn", {"what": "all"}, "train_on_inputs")
    draft.put("append_eos", item.get("type") == "completion" or None)
    strategy = preference_strategy_with_own_template(draft.get("rl"), item.get("type"))
    if strategy:
        draft.own_prompt = True
        draft.notes.append(
            f"type: {strategy} writes its own prompts and stop marks, not those of the tokenizer's"
            " template: how many tokens are learned is not judged"
        )
    if draft.fields.get("format") == "alpaca":
        draft.own_prompt = True
        draft.notes.append(
            "rows of the type alpaca: truetune looks at them as chats, not in Axolotl's Alpaca"
            " prompt"
        )
    other = draft.fields.setdefault("training.other", {})
    for key in DATASET_KEYS_KEPT:
        if item.get(key) is not None:
            other.setdefault(f"datasets.{key}", item[key])


def preference_strategy_with_own_template(method: Any, kind: Any) -> str:
    """The strategy of a preference data set, where it writes its own template; empty for any other data set."""
    if method not in (*PAIR_METHODS, "kto"):
        return ""
    if isinstance(kind, dict):
        return "user_defined.default"
    name = str(kind or "")
    return name if name.partition(".")[0] in OWN_TEMPLATES else ""


def _read_dataset(draft: ConfigDraft, item: dict[str, Any], pretraining: bool) -> ConfigDataset:
    """One data set of the YAML: its files, format and columns."""
    name = str(item.get("path"))
    paths = local_dataset_files(draft, name, item.get("data_files"), item.get("data_dir"))
    made = _format_and_map_or_reason(draft, item, pretraining)
    if isinstance(made, str):
        return ConfigDataset(name, paths, why_not=made)
    return ConfigDataset(name, paths, *made, unread=_input_column_unread_by_own_format(item))


def _input_column_unread_by_own_format(item: dict[str, Any]) -> frozenset[str]:
    """The column `input`, where the `format` of a `type` of one's own leaves it out; Axolotl says nothing of it."""
    kind = item.get("type")
    written = kind.get("format") if isinstance(kind, dict) else None
    if not isinstance(written, str) or "{input}" in written:
        return frozenset()
    return frozenset(("input",))


def _format_and_map_or_reason(
    draft: ConfigDraft, item: dict[str, Any], pretraining: bool
) -> tuple[FormatName | None, dict[str, str]] | str:
    """The format and the column map of a data set, or why it cannot be read."""
    kind = item.get("type")
    # Plain text comes before the methods: pretraining and completion rows have no turns whatever `rl` says.
    if pretraining or kind == "completion" or (kind is None and item.get("field")):
        column = item.get("text_column") or item.get("field") or "text"
        return "text", {} if column == "text" else {"text": str(column)}
    method = draft.get("rl")
    if method in PAIR_METHODS:
        return _format_and_map_of_preference({**item, **kind} if isinstance(kind, dict) else item)
    if isinstance(kind, dict):
        return _format_and_map_of_alpaca(kind)
    if method == "kto":
        return "kto", {}
    return _format_and_map_by_supervised_type(kind, item)


def _format_and_map_by_supervised_type(
    kind: Any, item: dict[str, Any]
) -> tuple[FormatName | None, dict[str, str]] | str:
    """The format and the column map of a supervised data set by its `type`: `alpaca`,
    `alpaca:chat`, `chat_template.default`; or why it cannot be read.
    """
    base = str(kind or "").partition(":")[0].partition(".")[0]
    if base == "chat_template":
        return _format_and_map_of_chat(item)
    if base == "alpaca":
        return _format_and_map_of_alpaca(item)
    return (None, {}) if kind is None else f"rows of the type {kind} are Axolotl's own"


def _format_and_map_of_chat(item: dict[str, Any]) -> tuple[FormatName, dict[str, str]] | str:
    """The format and the column map of a chat data set, or why it cannot be read."""
    column = str(item.get("field_messages") or "messages")
    names = {
        **{"role": "role", "content": "content"},
        **_dict_or_empty(item.get("message_property_mappings")),
    }
    names["role"] = item.get("message_field_role") or names["role"]
    names["content"] = item.get("message_field_content") or names["content"]
    inside = _map_inside_messages(names, item.get("roles"))
    is_sharegpt = (names["role"], names["content"]) == ("from", "value") and not inside
    form: FormatName = "sharegpt" if is_sharegpt else "messages"
    ours = "conversations" if is_sharegpt else "messages"
    tools = item.get("field_tools")
    columns = {} if column == ours else {ours: column}
    return form, columns | ({"tools": str(tools)} if tools else {}) | inside


def _map_inside_messages(names: dict[str, Any], roles: Any) -> dict[str, str]:
    """What the map says of keys and roles inside messages; nothing where they have names that truetune knows.

    `roles` replaces Axolotl's own names of roles (human, gpt), so that from and value are read by it alone.
    """
    given = {
        f"role.{ours}": ",".join(map(str, theirs if isinstance(theirs, list) else [theirs]))
        for ours, theirs in _dict_or_empty(roles).items()
        if theirs
    }
    pair = str(names["role"]), str(names["content"])
    if not given and pair in (("role", "content"), ("from", "value")):
        return {}
    keys = {
        f"message.{ours}": theirs
        for ours, theirs in zip(("role", "content"), pair, strict=True)
        if ours != theirs
    }
    return keys | (given or AXOLOTL_ROLES)


def _format_and_map_of_alpaca(item: dict[str, Any]) -> tuple[FormatName, dict[str, str]]:
    """The format and the column map of an alpaca data set."""
    return "alpaca", {
        ours: str(item[key])
        for ours, key in ALPACA_FIELDS.items()
        if item.get(key) and item[key] != ours
    }


def _format_and_map_of_preference(item: dict[str, Any]) -> tuple[FormatName, dict[str, str]]:
    """The format and the column map of a preference data set."""
    columns = {
        "chosen": item.get("field_chosen"),
        "rejected": item.get("field_rejected"),
        "prompt": item.get("field_prompt"),
    }
    if item.get("field_messages"):
        columns["messages"] = item["field_messages"]
    return "preference", {
        ours: str(theirs) for ours, theirs in columns.items() if theirs and theirs != ours
    }


def _dict_or_empty(value: Any) -> dict[str, Any]:
    """A dictionary as it is; an empty one for anything else."""
    return value if isinstance(value, dict) else {}
