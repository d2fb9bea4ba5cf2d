"""Examples of rules on rows, tokenizers and templates: rows as JSON Lines, edits of a tokenizer's
files, settings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from truetune.report.rule_pages.example_files import (
    Example,
    ExampleFile,
    file_of_measured_facts,
    json_file,
    jsonl_file,
    yaml_file,
)
from truetune.report.rule_pages.generated_rows import rows_of_example

TOKENIZER = "tokenizer"
SCRIPT = "train.py"
STORED = "rows.parquet"
EDITS_OF_STORED_ROWS: Mapping[tuple[str, str], str] = {
    ("labels", "copy"): "labels: a copy of input_ids, prompts included",
    ("labels", "none"): "labels: -100 everywhere",
    ("labels", "no-stop"): "labels: the ids of the answers, -100 at their stop tokens",
    ("labels", "early"): "labels: the ids of the answers and of the headers before them",
    ("labels", "shifted"): "labels: the ids of the answers, moved by one position",
    ("ids", "two-bos"): "input_ids: each row begins with two BOS tokens",
    ("ids", "cut"): "input_ids: each row is cut after 30 tokens",
    ("ids", "beyond"): "input_ids: each row ends with an id past the end of the vocabulary",
    ("ids", "of-another-tokenizer"): "input_ids: made by the tokenizer of another model",
    ("ids", "of-another-template"): "input_ids: made by another chat template",
    ("pack", "joined"): "packed: several chats a row, one position count over all",
    ("pack", "parted"): "packed: several chats a row, position_ids begin again at each",
    ("pad", "learned"): "padding: stored in the rows, with labels",
}
HEALTHY_LABELS = "labels: the ids of the answers and their stop tokens, else -100"


def example_of_rows(block: Mapping[str, Any]) -> Example:
    """An example of a rule on rows: data.jsonl, the tokenizer's files, the settings and the script
    beside them.
    """
    edits = {f"{TOKENIZER}/{name}": edit for name, edit in (block.get("files") or {}).items()}
    data = {name: f"{name}.jsonl" for name in ("data", "eval_data") if name in block}
    files: list[ExampleFile] = []
    if "script" in block:
        files.append(ExampleFile(SCRIPT, block["script"]))
    for path, edit in edits.items():
        files += _edited_file(path, edit)
    files += [jsonl_file(path, rows_of_example(block[name])) for name, path in data.items()]
    files += _settings_file(block.get("spec") or {}, data)
    notes = [note for path, edit in edits.items() for note in _notes_on_edit(path, edit)]
    if "weights" in block:
        notes.append(_note_on_zero_embeddings(block["weights"]["zero"]))
    return Example(tuple(files), tuple(notes), tuple(edits))


def _settings_file(spec: Mapping[str, Any], data: Mapping[str, str]) -> Iterator[ExampleFile]:
    """The settings of the run with the paths of its data; none where nothing else is set."""
    settings = {name: value for name, value in spec.items() if name != "ignore"}
    if settings:
        yield yaml_file("truetune.yaml", {TOKENIZER: TOKENIZER, **data, **settings})


def _note_on_zero_embeddings(tokens: Sequence[str]) -> str:
    rows = ", ".join(f"`{token}`" for token in tokens)
    return f"The rows of {rows} in the embedding of `{TOKENIZER}/model.safetensors` are zero."


def _edited_file(name: str, edit: Any) -> Iterator[ExampleFile]:
    if isinstance(edit, dict):
        there = {key: value for key, value in edit.items() if value is not None}
        if there:
            yield replace(json_file(name, there), is_edit=True)
    elif edit is not None:
        yield ExampleFile(name, str(edit), is_edit=True)


def _notes_on_edit(name: str, edit: Any) -> Iterator[str]:
    if edit is None:
        yield f"There is no `{name}`."
    elif isinstance(edit, dict):
        gone = [f"`{key}`" for key, value in edit.items() if value is None]
        if gone:
            yield f"`{name}` has no {', '.join(gone)}."
        if len(gone) < len(edit):
            yield f"Of `{name}`, only the changed keys are shown."


def example_of_retrieval_rows(block: Mapping[str, Any]) -> Example:
    """An example of a rule on rows as they stand in files: data.jsonl, and the evaluation rows."""
    return Example(
        tuple(
            jsonl_file(f"{name}.jsonl", rows_of_example(block[name]))
            for name in ("data", "eval_data")
            if name in block
        )
    )


def example_of_stored_rows(block: Mapping[str, Any]) -> Example:
    """An example of a rule on rows of token ids: the rows, or what a Parquet file holds, column by column."""
    if "data" in block:
        return example_of_retrieval_rows(block)
    columns = {"input_ids": "input_ids: chats of a real tokenizer", "labels": HEALTHY_LABELS}
    for step in block["make"][1:]:
        for what, how in step.items():
            _edit_columns(columns, what, how)
    text = "".join(f"{line}\n" for line in columns.values())
    files = [ExampleFile(STORED, text, is_measured=True)]
    settings = dict(block.get("settings") or {})
    if "trainer" in block:
        settings["trainer"] = block["trainer"]
    if settings:
        files.append(file_of_measured_facts("settings of the check", settings))
    return Example(tuple(files))


def _edit_columns(columns: dict[str, str], what: str, how: Any) -> None:
    """Change what is said of stored columns by one edit.

    Args:
        columns: by name, the line on each.
        what: `drop` for columns that are not stored, `mask` for one that is added, else the first
            part of a key of EDITS_OF_STORED_ROWS.
        how: the columns, or the second part of that key.
    """
    if what == "drop":
        for name in how:
            columns.pop(name, None)
        line = f"{' and '.join(how)}: not stored"
    elif what == "mask":
        line = f"{how}: written"
    else:
        line = EDITS_OF_STORED_ROWS[what, how]
    name = line.partition(":")[0]
    # What was changed last comes last.
    columns.pop(name, None)
    columns[name] = line
