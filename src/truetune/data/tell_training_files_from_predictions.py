"""Tells which files of rows in a folder are training rows, which are predictions of a model, and
which are neither.

A project's folder holds more than its training rows: answers of the tuned model, a configuration of DeepSpeed, a list
of labels. Taken together they are a data set that nobody trains, and what is said of it is false. Each file is told by
what recognises single files, and by the columns of its first row. The trade-off: a file is left out only where that
proves something; a name of a column that training rows have as well (`output` beside `reference`) proves it only beside
another file of training rows.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from truetune.data.find_data_files import DataFile, find_data_files_of_paths, open_raw
from truetune.data.llm_judge_verdicts_and_bias import is_row_of_verdicts
from truetune.data.read_file_records import read_records
from truetune.data.recognise_prediction_columns import normalize_column_name
from truetune.data.retrieval_rows import layout_of_row
from truetune.data.row_format_readers import choose_reader
from truetune.errors import DataError, TruetuneError
from truetune.parsing.input_limits import SETTINGS as SETTINGS_FILE
from truetune.parsing.read_files_within_limits import read_bytes_within_limit
from truetune.settings.recognise_input_kind import recognise_kinds
from truetune.source.find_source_files import SKIPPED_FOLDERS
from truetune.source.notebook_code_cells import read_code_cells
from truetune.source.parsed_source_file import decode_source_file_with_codec

MAX_FILES = 200
"""Files that are opened; a folder of more holds the shards of one data set"""
SURE_PREDICTIONS = frozenset(
    (
        "prediction",
        "predictions",
        "predicted",
        "pred",
        "preds",
        "predict",
        "generated",
        "generated_text",
        "generation",
        "model_output",
        "model_answer",
        "model_response",
        "generated_answer",
        "llm_output",
        "llm_response",
        "actual_output",
        "hypothesis",
        "hyp",
    )
)
"""Columns that hold what a model wrote"""
POSSIBLE_PREDICTIONS = frozenset(["output", "response", "completion", "answer", "result"])
"""Columns that hold the answer of training rows too"""
REFERENCES = frozenset(
    (
        "reference",
        "references",
        "reference_answer",
        "ref",
        "gold",
        "gold_answer",
        "golden_answer",
        "golden",
        "ground_truth",
        "expected",
        "expected_output",
        "expected_answer",
    )
)
LABELS_BESIDE = frozenset(["label", "labels", "target"])
"""References beside a column that surely holds predictions: LLaMA-Factory writes prompt, predict, label"""
PREDICTION_PARTS = frozenset(
    ["predicted", "prediction", "pred", "preds", "generated", "hypothesis"]
)
REFERENCE_PARTS = frozenset(["true", "gold", "golden", "reference", "expected", "truth", "gt"])
"""Parts of the names of two columns that stand beside each other where answers are scored: `predicted_class` and
`true_class`"""
SCORES = re.compile(r"accura|exact.?match|\bem\b|\bf1|score|\.mean\(|correct", re.I)
"""What a script that scores answers says"""
ENDS = frozenset(["finish_reason", "stop_reason", "finish", "finished_by"])
"""Columns that say what ended an answer"""
REPLY_TEXTS = frozenset(["text", "content", "reply", "message", "assistant", *POSSIBLE_PREDICTIONS])
"""Columns in which scripts write what a server replied"""
COUNTS = frozenset(
    ["completion_tokens", "output_tokens", "generated_tokens", "new_tokens", "num_tokens", "usage"]
)
"""Columns that count the tokens of a reply"""
WRITES = re.compile(r"""["']a?w[bt+]*["']|["']a[bt+]*["']|\.write_text|to_json|\btee\b|>>?|--out""")
"""What writes a file in a script"""
WRITES_ROWS = re.compile(
    rf"{WRITES.pattern}|print\(\s*json\.dumps\(|csv\.(?:Dict)?[wW]riter\(|to_csv\(|print\(\s*\{{"
)
"""What writes rows in a script; what it prints is sent to a file by the shell"""
ASKS_A_MODEL = re.compile(
    r"completions\.create\(|responses\.create\(|/v1/(?:chat/)?completions|/api/(?:chat|generate)|ollama\.(?:chat|generate)"
    r"|\.generate\(|\.chat\(|pipeline\(|InferenceClient\("
)
"""What asks a model for an answer"""
READS_DATA = re.compile(
    r"[\w-]\.(?:jsonl?|csv|tsv|parquet)\b|load_dataset\(\s*[\"'][\w.-]+/[\w.-]+"
)
"""What names the rows that a script trains on"""
# 200: longer paths in a script are none of its data.
NAMED_ROWS = re.compile(r"(?<=[\"'])[\w./-]{1,200}\.(?:jsonl?|csv|tsv|parquet)(?=[\"'])")
"""A file of rows that a script names"""
TRAINS = (
    "Trainer(",
    ".backward(",
    "llamafactory-cli train",
    "axolotl train",
    "tune run",
    "load_dataset(",
)
"""Words of scripts that train"""
SCRIPTS = ("*.py", "*.sh")
NOTEBOOKS = ("*.ipynb",)
"""Read only for what they train on: one notebook often trains, asks and compares, and does not say what a file is"""
MAX_SCRIPTS = 40
"""Scripts around a file that are read. Chosen by hand: it bounds the time in folders of hundreds of
scripts. Fewer could miss the one that trains on the file"""
ANSWER_FILE = re.compile(
    r"(?:pred|generat|answer|output|repl(?:y|ies)|response|completion|sample|infer|result).{0,60}\.(?:jsonl|json|csv)$",
    re.IGNORECASE,
)
"""Names of files in which scripts write answers"""
MAX_DEPTH = 3
"""Folders below: saves/model/lora/predict is three down"""
MAX_FILES_BELOW = 20
"""Files below whose first row is read. Chosen, not measured: it bounds the time"""
# Chosen, not measured: one or two names (text, id) stand in any script.
MIN_COLUMNS = 3
"""Columns of a file that a script has to spell to be the one that writes it"""

FileKind = Literal["training", "prediction", "origin", "other"]


class FolderFiles(NamedTuple):
    """The files of rows in a folder."""

    training: tuple[str, ...]
    predictions: tuple[str, ...]
    others: tuple[str, ...]
    """Settings, lists of names, logs, verdicts of a judge, and what scripts here write or read as raw tables"""
    origins: tuple[str, ...] = ()
    """Rows of which a script makes the rows that are trained"""


def classify_folder_files(folder: Path) -> FolderFiles | None:
    """The files in a folder by what they are: training rows, predictions, others. None if all are
    training rows, or the folder can't be sorted.
    """
    heads = {
        str(source.path): _first_row_of_source(source)
        for source in _sources_if_all_text_and_few(folder)
    }
    rows = {path: head for path, head in heads.items() if head is not None}
    kinds: dict[str, FileKind] = {
        path: _kind_of_file(path, rows) if path in rows else "other" for path in heads
    }
    if all(kind == "training" for kind in kinds.values()):
        return None
    return FolderFiles(
        training=_paths_of_kind(kinds, "training"),
        predictions=_paths_of_kind(kinds, "prediction"),
        others=_paths_of_kind(kinds, "other"),
        origins=_paths_of_kind(kinds, "origin"),
    )


def _kind_of_file(path: str, rows: Mapping[str, Mapping[str, Any]]) -> FileKind:
    """What a file of rows is, by the first rows of all files and by the scripts beside them."""
    if _holds_judge_verdicts(rows[path]) or _is_definition_of_tool(rows[path]):
        return "other"
    if _is_row_of_retrieval_training(rows[path]):
        return "training"
    if _holds_predictions(path, rows):
        return "prediction"
    if _is_output_of_non_training_script(path, rows):
        return "other"
    if _is_source_of_trained_file(path, rows):
        return "origin"
    return "other" if _is_raw_source_without_format(path, rows) else "training"


def _is_row_of_retrieval_training(row: Mapping[str, Any]) -> bool:
    """Does a row train an embedding model or a reranker? A query with a text and a score may be an answer of one."""
    layout = layout_of_row(row)
    return layout is not None and (layout != "sentence-transformers" or "query" not in row)


def _paths_of_kind(kinds: Mapping[str, FileKind], kind: FileKind) -> tuple[str, ...]:
    """The files of one kind, in their order."""
    return tuple(path for path, one in kinds.items() if one == kind)


def list_training_files(folder: Path) -> tuple[str, ...]:
    """The files of a folder whose first row is one of training, by its columns; files of other kinds are left out."""
    heads = {
        str(source.path): _first_row_of_source(source)
        for source in _sources_if_all_text_and_few(folder)
    }
    rows = {path: head for path, head in heads.items() if head}
    return tuple(
        path
        for path, row in rows.items()
        if _columns_fit_a_format(row) and not _holds_predictions(path, rows)
    )


def list_prediction_files(paths: Sequence[str]) -> tuple[str, ...]:
    """The files of predictions among paths and in the folders among them; globs and addresses have none."""
    files: list[str] = []
    for path in paths:
        if Path(path).is_dir():
            sorted_files = classify_folder_files(Path(path))
            files += sorted_files.predictions if sorted_files else ()
            files += filter(_is_surely_predictions, _prediction_files_below(Path(path)))
        elif Path(path).is_file() and _is_surely_predictions(path):
            files.append(path)
    return tuple(dict.fromkeys(files))


def _prediction_files_below(folder: Path) -> list[str]:
    """The files in the folders below one that may hold predictions, by their names: trainers write
    them beside weights.
    """
    depth = len(folder.parts)
    prediction_files: list[str] = []
    for parent, folders, names in os.walk(folder):
        is_deep = len(Path(parent).parts) - depth >= MAX_DEPTH
        folders[:] = [] if is_deep else sorted(filter(_folder_may_hold_user_files, folders))
        if Path(parent) != folder:
            prediction_files += [
                str(Path(parent, name)) for name in sorted(names) if ANSWER_FILE.search(name)
            ]
        if len(prediction_files) >= MAX_FILES_BELOW:
            break
    return prediction_files[:MAX_FILES_BELOW]


def _folder_may_hold_user_files(name: str) -> bool:
    """May a folder of that name hold what the user wrote, and not a tool?"""
    return not name.startswith(".") and name not in SKIPPED_FOLDERS


def _is_surely_predictions(path: str) -> bool:
    """Does a single file hold predictions? Only columns that no training rows have prove it."""
    try:
        (source,) = find_data_files_of_paths([path])
    # Of no kind that holds rows, or the shards of a data set.
    except (DataError, ValueError):
        return False
    if source.kind not in ("jsonl", "json", "csv"):
        return False
    row = _first_row_of_source(source)
    if not row:
        return False
    return _is_row_of_prediction(row, SURE_PREDICTIONS) or _is_server_reply_written_by_script(
        path, row
    )


def _holds_judge_verdicts(row: Mapping[str, Any]) -> bool:
    """Does a file hold an LLM judge's verdicts on pairs? Pairs that a trainer reads have their own
    columns.
    """
    return is_row_of_verdicts(dict(row)) and not _columns_fit_a_format(row)


def _is_definition_of_tool(row: Mapping[str, Any]) -> bool:
    """Does a row define a tool that a model may call: its name, and the JSON schema of its arguments?"""
    function = row.get("function") if row.get("type") == "function" else row
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        return False
    schema = function.get("parameters", function.get("input_schema"))
    return isinstance(schema, Mapping) and schema.get("type") == "object"


def _sources_if_all_text_and_few(folder: Path) -> list[DataFile]:
    """The data files of a folder, if all are of text and not too many; otherwise none."""
    try:
        sources = find_data_files_of_paths([str(folder)])
    except DataError:
        return []
    are_texts = all(source.kind in ("jsonl", "json", "csv") for source in sources)
    return sources if are_texts and len(sources) <= MAX_FILES else []


def _holds_predictions(path: str, rows: Mapping[str, Mapping[str, Any]]) -> bool:
    """Does a file hold predictions, by the first rows of all files?"""
    if _is_row_of_prediction(rows[path], SURE_PREDICTIONS) or _is_server_reply_written_by_script(
        path, rows[path]
    ):
        return True
    if _is_untrained_row_with_two_answers(path, rows[path]):
        return True
    if not _is_row_of_prediction(rows[path], POSSIBLE_PREDICTIONS):
        return False
    if _other_file_has_other_training_columns(path, rows) or _is_scored_and_never_trained_on(
        path, rows[path]
    ):
        return True
    return _scripts_train_other_files_only(Path(path))


def _scripts_train_other_files_only(file: Path) -> bool:
    """Do the scripts here train on other existing files, and none on this one?

    The rows of training often stand in a folder of their own (`data/`), and the answers beside the scripts.
    """
    trainings = [text for text in _texts_of_scripts_around(file) if _trains_model(text)]
    if not trainings or any(file.stem in text for text in trainings):
        return False
    return all(
        any(_name_means_file(match[0], file) for match in NAMED_ROWS.finditer(text))
        for text in trainings
    )


def _name_means_file(name: str, file: Path) -> bool:
    """Does a name mean an existing file, from the folder of another file or the one above it?"""
    try:
        return any((folder / name).is_file() for folder in (file.parent, file.parent.parent))
    except (OSError, ValueError):
        return False


def _is_scored_and_never_trained_on(path: str, row: Mapping[str, Any]) -> bool:
    """Does a script score the answers of this file, and none train on it?

    `output` and `expected` may be a training row's; a script that compares the two and names the file says what it is.
    """
    texts = _texts_of_scripts_around(Path(path))
    if any(_trains_model(text) for text in texts):
        return False
    columns = {
        name
        for name in row
        if normalize_column_name(name) in POSSIBLE_PREDICTIONS | REFERENCES | LABELS_BESIDE
    }
    return any(
        Path(path).name in text
        and "==" in text
        and SCORES.search(text)
        and all(re.search(rf"\b{re.escape(name)}\b", text) for name in columns)
        for text in texts
    )


def _is_untrained_row_with_two_answers(path: str, row: Mapping[str, Any]) -> bool:
    """Does a row hold two answers, and what ended one of them, where no script beside trains on its file?

    One of the two is the reference: `completion` with its `finish_reason` beside the `answer` of a data set.
    """
    names = {normalize_column_name(name) for name in row}
    if not names & ENDS or len(names & POSSIBLE_PREDICTIONS) < 2:
        return False
    file = Path(path)
    return not any(
        _trains_model(text) and file.stem in text for text in _texts_of_scripts_around(file)
    )


def _first_row_of_source(source: DataFile) -> Mapping[str, Any] | None:
    """The first row of a file; an empty one if the file can't be read, None if it surely holds no
    rows.
    """
    path = Path(str(source.path))
    try:
        if recognise_kinds(path) != ("data",):
            return None
    except TruetuneError:
        return {}
    try:
        with open_raw(source.path) as raw:
            record = next(read_records(source, raw), None)
    except DataError:
        return {}
    if record is None or record.error is not None:
        return {}
    return record.row if isinstance(record.row, dict) else None


def _is_row_of_prediction(row: Mapping[str, Any], answer_columns: frozenset[str]) -> bool:
    """Does a row hold what a model wrote, with a reference or what ended the answer beside it?"""
    texts = {normalize_column_name(name) for name, value in row.items() if isinstance(value, str)}
    if answer_columns is SURE_PREDICTIONS:
        if texts & LABELS_BESIDE and texts & answer_columns:
            return True
        if _has_prediction_and_reference_columns(texts):
            return True
    return bool(texts & answer_columns) and bool(texts & (REFERENCES | ENDS))


def _has_prediction_and_reference_columns(columns: Iterable[str]) -> bool:
    """Is one column a prediction and another its reference, by parts of their names?"""
    parts = [frozenset(name.split("_")) for name in columns]
    predictions = [one for one in parts if one & PREDICTION_PARTS and not one & REFERENCE_PARTS]
    references = [one for one in parts if one & REFERENCE_PARTS and not one & PREDICTION_PARTS]
    return bool(predictions and references)


def _is_output_of_non_training_script(path: str, rows: Mapping[str, Mapping[str, Any]]) -> bool:
    """Does a script that trains nothing write these columns, which no training rows have, beside rows of training?

    `question, before, after` of a comparison is no broken row of the data set beside it.
    """
    row, file = rows[path], Path(path)
    if len(row) < MIN_COLUMNS or _columns_fit_a_format(row):
        return False
    if not any(_columns_fit_a_format(other) for one, other in rows.items() if one != path):
        return False
    texts = _texts_of_scripts_around(file)
    if any(_trains_model(text) and file.stem in text for text in texts):
        return False
    return any(
        _spells_all_columns(text, row) and WRITES_ROWS.search(text) and not _trains_model(text)
        for text in texts
    )


def _is_source_of_trained_file(path: str, rows: Mapping[str, Mapping[str, Any]]) -> bool:
    """Does a script make the rows of another file here from the rows of this one, and is that other
    file alone trained?

    Judged together, each row would be there twice: as it was, and as it is trained.
    """
    trainings = [text for text in _texts_of_scripts_around(Path(path)) if _trains_model(text)]
    if not trainings:
        return False
    trained = [
        Path(other)
        for other in rows
        if all(_script_names_file(text, Path(other)) for text in trainings)
    ]
    return _script_makes_target_from_untrained_file(path, trained, _script_writes_file)


def _is_raw_source_without_format(path: str, rows: Mapping[str, Mapping[str, Any]]) -> bool:
    """Does a script make the rows of another file from this one, whose columns fit no training
    format?

    The table of tickets is sound as it is: no trainer reads it, so its columns need to fit no format.
    """
    if _columns_fit_a_format(rows[path]):
        return False
    fitting = [Path(other) for other, row in rows.items() if _columns_fit_a_format(row)]
    return _script_makes_target_from_untrained_file(path, fitting, _script_may_write_file)


def _script_makes_target_from_untrained_file(
    path: str, targets: Sequence[Path], writes: Callable[[Path, str], bool]
) -> bool:
    """Does a script that trains nothing read this file and write one of the targets, and none train
    on this one?

    Args:
        path: the file whose rows may be used for others.
        targets: the files that may be made of it.
        writes: does a script, by its text, write a file? How sure it has to be depends on what is left out.
    """
    file = Path(path)
    others = [one for one in targets if one != file]
    if not others:
        return False
    texts = _texts_of_scripts_around(file)
    readers = (*texts, *_texts_of_scripts_around(file, NOTEBOOKS))
    if any(_trains_model(text) and file.name in text for text in readers):
        return False
    return any(
        _script_only_reads_file(file, text) and any(writes(one, text) for one in others)
        for text in texts
        if not _trains_model(text)
    )


def _script_names_file(script: str, file: Path) -> bool:
    """Does a script spell the name of a file?"""
    return re.search(_pattern_of_quoted_file_name(file), script) is not None


def _pattern_of_quoted_file_name(file: Path) -> str:
    """A regular expression for a file's name in quotes, with any folders before it."""
    return rf"""["'](?:[\w.~-]*/)*{re.escape(file.name)}["']"""


def _script_writes_file(file: Path, script: str) -> bool:
    """Does a script write a file by its name?"""
    name = _pattern_of_quoted_file_name(file)
    opened = rf"{name}\s*\)?\s*(?:,|\.open\()\s*(?:mode\s*=\s*)?[\"'][wax]"
    saved = rf"{name}\)\.write|(?:to_json|to_csv)\(\s*{name}"
    return re.search(f"{opened}|{saved}", script) is not None


def _script_may_write_file(file: Path, script: str) -> bool:
    """Does a script that writes rows name a file, and not to read it? Its name may be the default of an option."""
    writes_rows = WRITES_ROWS.search(script) is not None
    return writes_rows and file.name in script and not _script_only_reads_file(file, script)


def _script_only_reads_file(file: Path, script: str) -> bool:
    """Does a script open a file for reading, and nowhere for writing?"""
    name = _pattern_of_quoted_file_name(file)
    reads = re.search(
        rf"(?:\bopen|read_json|read_csv|Path)\(\s*{name}\s*(?:\)|,(?!\s*(?:mode\s*=\s*)?[\"'][wax]))",
        script,
    )
    loads = re.search(rf"data_files\s*=[^\n]{{0,80}}{name}", script)
    return bool(reads or loads) and not _script_writes_file(file, script)


def _is_server_reply_written_by_script(path: str, row: Mapping[str, Any]) -> bool:
    """Does a row look like a server's reply, by its columns, which a script beside its file writes
    and none trains on?

    Rows for training that a model wrote have the same columns: who reads them decides.
    """
    names = {normalize_column_name(name) for name in row}
    if not names & (REPLY_TEXTS | SURE_PREDICTIONS):
        return False
    file = Path(path)
    texts = _texts_of_scripts_around(file)
    if _is_logged_request_with_reply(row, names):
        # A training that names the file may append the reply to the messages itself.
        return not any(_trains_model(text) and file.name in text for text in texts)
    if not names & (ENDS | COUNTS):
        return _is_model_answer_written_by_script(file, row, texts)
    # A file that is named on the command line is known by its columns, where one script writes all of them.
    naming = [text for text in texts if file.name in text or _spells_all_columns(text, row)]
    if any(map(_trains_model, naming)):
        return False
    return any(WRITES.search(text) for text in naming)


def _is_logged_request_with_reply(row: Mapping[str, Any], names: set[str]) -> bool:
    """Is a row a request with its reply: messages that end with the user's turn, a text, and what ended it?

    Rows of training end with the assistant's turn, be they written by a model or not.
    """
    messages = row.get("messages")
    if not names & (ENDS | COUNTS) or not isinstance(messages, list) or not messages:
        return False
    last = messages[-1]
    return isinstance(last, dict) and last.get("role") == "user"


def _is_model_answer_written_by_script(
    file: Path, row: Mapping[str, Any], texts: Sequence[str]
) -> bool:
    """Does a script ask a model and write its answers into a file, where the project trains on other files?

    A script that makes training rows by a model writes the same columns, so a training has to name what it reads.
    """
    trainings = [text for text in texts if _trains_model(text)]
    names_its_rows = any(map(READS_DATA.search, trainings))
    if not names_its_rows or any(file.stem in text for text in trainings):
        return False
    return any(_script_asks_model_and_writes_answers(file, row, text) for text in texts)


def _script_asks_model_and_writes_answers(file: Path, row: Mapping[str, Any], script: str) -> bool:
    """Does a script that trains no model ask one, and write its answers into a file with these columns?"""
    if file.name not in script and not _spells_all_columns(script, row):
        return False
    if _script_only_reads_file(file, script):
        return False
    asks_and_writes = ASKS_A_MODEL.search(script) and WRITES.search(script)
    return bool(asks_and_writes) and not _trains_model(script)


def _trains_model(script: str) -> bool:
    """Does a script train a model?"""
    return any(word in script for word in TRAINS)


def _spells_all_columns(text: str, row: Mapping[str, Any]) -> bool:
    """Does a script name all columns of a row in its text?"""
    return all(f'"{name}"' in text or f"'{name}'" in text for name in row)


def _texts_of_scripts_around(file: Path, patterns: Sequence[str] = SCRIPTS) -> list[str]:
    """The texts of the scripts in the folder of a file, and in the one above it."""
    # The folder's own come first: many scripts above it must not push them out.
    found = [
        script
        for folder in (file.parent, file.parent.parent)
        for script in sorted(one for pattern in patterns for one in folder.glob(pattern))
    ]
    return [_read_script_text(path) for path in found[:MAX_SCRIPTS]]


def _read_script_text(path: Path) -> str:
    """The text of a script, of a notebook that of its code; empty where it can't be read."""
    try:
        if path.suffix == ".ipynb":
            text, _ = decode_source_file_with_codec(path)
            return "\n".join(cell.text for cell in read_code_cells(text, str(path)))
        return read_bytes_within_limit(path, SETTINGS_FILE).decode("utf-8", "replace")
    except (OSError, TruetuneError):
        return ""


def first_row_fits_a_format(path: str) -> bool:
    """Do the columns of a file's first row fit one of the formats?"""
    try:
        (source,) = find_data_files_of_paths([path])
    except (DataError, ValueError):
        return False
    row = _first_row_of_source(source)
    return bool(row) and row is not None and _columns_fit_a_format(row)


def _columns_fit_a_format(row: Mapping[str, Any]) -> bool:
    """Do the columns of a row fit a format of training rows?"""
    try:
        choose_reader(dict(row), None, "")
    except DataError:
        return False
    return True


def _other_file_has_other_training_columns(
    path: str, rows: Mapping[str, Mapping[str, Any]]
) -> bool:
    """Does another file hold training rows with other columns? Two splits of one data set have the
    same.
    """
    own = set(rows[path])
    return any(
        set(row) != own
        and _columns_fit_a_format(row)
        and not _is_row_of_prediction(row, POSSIBLE_PREDICTIONS)
        for other, row in rows.items()
        if other != path
    )
