"""LLaMA-Factory's data sets: names that dataset_info.json explains."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from truetune.errors import SpecError
from truetune.spec import located
from truetune.spec.config import Place
from truetune.spec.run import Format
from truetune.spec.stacks.datasets import Rows, give
from truetune.spec.stacks.draft import Draft, names

INFO = "dataset_info.json"
ALPACA = {"instruction": "prompt", "input": "query", "output": "response", "history": "history"}
COMMON = {"system": "system", "tools": "tools"}
BY_DEFAULT = {
    "prompt": "instruction",
    "query": "input",
    "response": "output",
    "messages": "conversations",
}
TAGS = {
    "role_tag": "from",
    "content_tag": "value",
    "user_tag": "human",
    "assistant_tag": "gpt",
    "observation_tag": "observation",
    "function_tag": "function_call",
    "system_tag": "system",
}
HUBS = ("hf_hub_url", "ms_hub_url", "om_hub_url", "script_url", "cloud_file_name")
SHAREGPT = {
    "user_tag": ("human", "user"),
    "assistant_tag": ("gpt", "assistant"),
    "system_tag": ("system",),
    "observation_tag": ("observation", "tool"),
    "function_tag": ("function_call",),
}


def data(draft: Draft) -> None:
    """`dataset` and `eval_dataset`. Raises SpecError where dataset_info.json is broken."""
    draft.get("dataset_dir")
    for key, field in (("dataset", "data"), ("eval_dataset", "eval_data")):
        wanted = names(draft.get(key))
        info, folder = _info(draft) if wanted else (None, None)
        give(draft, [_rows(draft, name, key, info, folder) for name in wanted], key, field=field)


def _info(draft: Draft) -> tuple[Mapping[str, Any] | None, Path | None]:
    where = draft.get("dataset_dir")
    folder = draft.find(str(where)) if isinstance(where, str) else None
    if isinstance(where, dict):
        return where, Path(draft.path).parent
    if folder is None or not (folder / INFO).is_file():
        draft.notes.append(f"dataset_dir: {where}/{INFO} is not here")
        return None, None
    value = located.read(folder / INFO).value
    if not isinstance(value, dict):
        raise SpecError(
            f"{folder / INFO}: expected data sets by name, found a {type(value).__name__}"
        )
    return value, folder


def _rows(
    draft: Draft, name: str, key: str, info: Mapping[str, Any] | None, folder: Path | None
) -> Rows:
    if info is None or folder is None:
        return Rows(name, ())
    about = info.get(name)
    if not isinstance(about, dict):
        draft.missing.append(draft.where.get(key, Place(draft.path, 1, key))._replace(key=name))
        return Rows(name, ())
    if any(hub in about for hub in HUBS):
        return Rows(name, ())
    path = folder / str(about.get("file_name"))
    made = _form(about, str(draft.get("stage")))
    paths = (str(path),) if path.exists() else ()
    return Rows(name, paths, why_not=made) if isinstance(made, str) else Rows(name, paths, *made)


def _form(about: Mapping[str, Any], stage: str) -> tuple[Format, dict[str, str]] | str:
    columns = about.get("columns")
    columns = columns if isinstance(columns, dict) else None
    given = about.get("tags")
    tags = {**TAGS, **(given if isinstance(given, dict) else {})}
    formatting = about.get("formatting", "alpaca")

    def called(theirs: str) -> str | None:
        return BY_DEFAULT.get(theirs) if columns is None else columns.get(theirs)

    if any(called(name) for name in ("images", "videos", "audios")):
        return "it holds images, sound or video"
    common = {ours: called(theirs) for ours, theirs in COMMON.items()}
    sides = {side: called(side) for side in ("chosen", "rejected")} if about.get("ranking") else {}
    label = {"label": called("kto_tag")} if called("kto_tag") else {}
    if formatting == "alpaca":
        wanted = {ours: called(theirs) for ours, theirs in ALPACA.items()}
        if stage == "pt" and not wanted["output"]:
            return "text", _map({"text": wanted["instruction"]})
        form: Format = "preference" if sides else "kto" if label else "alpaca"
        return form, _map({**wanted, **common, **sides, **label})
    by_role = tags["role_tag"], tags["content_tag"]
    odd = [tags[tag] for tag, known in SHAREGPT.items() if tags[tag] not in known]
    if by_role not in (("from", "value"), ("role", "content")) or odd:
        return f"its messages name {', '.join(odd or by_role)}, which truetune does not read"
    plain = by_role == ("role", "content") and not sides
    form = "preference" if sides else "kto" if label else "messages" if plain else "sharegpt"
    ours = "messages" if form == "messages" else "conversations"
    return form, _map({ours: called("messages"), **common, **sides, **label})


def _map(columns: Mapping[str, str | None]) -> dict[str, str]:
    return {ours: str(theirs) for ours, theirs in columns.items() if theirs and theirs != ours}
