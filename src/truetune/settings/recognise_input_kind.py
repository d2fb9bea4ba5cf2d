"""Recognises what a path is (data, config, run, model, script, ...) from names and the heads of
files.

`truetune check PATH` takes whatever a user has, so nothing else may have to be said. The name decides where it can
(`.py`, `Modelfile`), then the first bytes, and only for what looks like settings the whole file. A folder may be
several things at once, a checkpoint beside a log beside scripts; all of them are named, the main one first. The price
of heads: a file whose sign comes later than `HEAD_BYTES` is told by its suffix.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import chain, islice
from os import PathLike
from pathlib import Path
from typing import Any, Literal

from truetune.errors import SpecError, UsageError, format_name_list
from truetune.parsing.decompress_within_limits import COMPRESSED_SUFFIXES
from truetune.parsing.input_limits import RESULT
from truetune.parsing.parse_json_within_limits import parse_json
from truetune.parsing.read_ollama_modelfile import is_modelfile_name
from truetune.parsing.shell_commands import is_command_file
from truetune.settings import located_document
from truetune.settings.config import Stack
from truetune.settings.stacks.read_config_of_any_stack import (
    ACCELERATE,
    DEEPSPEED,
    OWN_TOML_TABLE,
    advise_how_to_identify,
    identify_stack,
    name_kind_of_file_without_run_settings,
)
from truetune.settings.stacks.registry import config_readers
from truetune.settings.suggest_spelling import did_you_mean_path
from truetune.trainers.trainer_fact_types import TrainerName

FileKind = Literal[
    "data",
    "encoded",
    "tokenizer",
    "model",
    "model config",
    "adapter",
    "run",
    "log",
    "source",
    "notebook",
    "commands",
    "settings",
    "accelerate",
    "deepspeed",
    "modelfile",
]
"""`model config`: the JSON files of a model whose weights are elsewhere; `settings`: of a program that neither keys nor
project tell; `accelerate`: how its launcher starts a script; `deepspeed`: what its script shards"""
InputKind = FileKind | Stack
"""What a path is; settings whose program is known are called by its name"""
FILE_KIND_TITLES: Mapping[InputKind, str] = {
    "data": "data", "encoded": "encoded data", "tokenizer": "tokenizer", "model": "model",
    "model config": "model without its weights", "adapter": "adapter",
    "run": "run folder", "log": "log of a run", "source": "Python source", "notebook": "notebook",
    "commands": "shell script", "settings": "settings of a program that is not known",
    "accelerate": "accelerate launch configuration", "deepspeed": "DeepSpeed configuration",
    "modelfile": "Ollama Modelfile",
}  # fmt: skip
"""As a report calls them; `title_of_kind` knows those of programs too"""
ACCEPTED_INPUTS = (
    "data (JSONL, JSON, CSV, Parquet, Arrow), a tokenizer, model or adapter folder, a run folder or"
    " its log, the settings of truetune, TRL, Axolotl, LLaMA-Factory, torchtune, ms-swift, verl, OpenRLHF, NeMo RL,"
    " prime-rl, LitGPT, AutoTrain or mergekit, Python files, notebooks, shell scripts, Makefiles or a Modelfile of"
    " Ollama"
)
# Enough for the twenty rows of a log; a notebook whose first output is larger is told by its suffix.
HEAD_BYTES = 1 << 16
"""Bytes of a file that are looked at"""
# Lines of a log that are parsed. Chosen, not measured: a summary or a few samples at its begin are outvoted.
LOG_ROWS_READ = 20
MAX_FOLDER_ENTRIES = 20_000
"""Entries of a folder that are looked at"""
LAUNCH_FILE_KINDS: Mapping[str, InputKind] = {ACCELERATE: "accelerate", DEEPSPEED: "deepspeed"}
"""Files that say how a run is spread over GPUs"""
CONSOLE_SUFFIXES = frozenset((".log", ".out", ".err"))
"""What a run printed"""
CONSOLE_LINE = re.compile(r"[^\[{]|\{'|\[[A-Za-z0-9][^\]\n]*\]")
"""How a text begins that is no JSON: `Epoch 1`, `{'loss': 2.1}`, `[INFO|trainer.py:2134]`"""
TABLE_SUFFIXES = frozenset((".parquet", ".arrow", ".feather", ".ipc"))
ROW_SUFFIXES = frozenset((".jsonl", ".ndjson", ".csv", ".tsv", *TABLE_SUFFIXES))
COMPRESSED = frozenset(COMPRESSED_SUFFIXES)
METADATA_FILES = frozenset((
    "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
    "added_tokens.json", "vocab.json", "adapter_config.json", "trainer_state.json", "preprocessor_config.json",
    "processor_config.json", "chat_template.json", "all_results.json", "train_results.json", "eval_results.json",
    "README.md", "dataset_info.json", "dataset_infos.json", "dataset_dict.json", "state.json", "manifest.json",
    "model.safetensors.index.json", "pytorch_model.bin.index.json", "trainer_log.jsonl",
))  # fmt: skip
"""JSON files in a folder that are no rows"""
TOKENIZER_FILES = frozenset(
    ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "spiece.model", "tekken.json")
)
WEIGHT_FILE = re.compile(
    r"(model|pytorch_model|consolidated)[-.\w]*\.(safetensors|bin|gguf)(\.index\.json)?|.+\.gguf"
)
WEIGHT_SUFFIXES = (".safetensors", ".bin", ".gguf", ".pt", ".pth", ".ckpt", ".h5", ".msgpack")
TENSORBOARD_FILE = re.compile(r"events\.out\.tfevents\..*")
LOG_FOLDERS = {"runs": "events.out.tfevents.*", "logs": "events.out.tfevents.*", "wandb": "*.wandb"}
"""Folders in that of a run, and the logs that stand in them"""
CHECKPOINT_FOLDER = re.compile(r"checkpoint-\d+")
STEP_COLUMNS = frozenset(
    ("step", "global_step", "epoch", "learning_rate", "_step", "current_steps", "train/global_step")
)
COUNTED_STEPS = frozenset(
    ("step", "global_step", "_step", "train/global_step", "trainer/global_step", "current_steps")
)
"""Columns that count the steps of a run, whatever else a table of it holds"""
NUMBER_CELL = re.compile(
    r'\s*"?[-+]?(?:\d[\d.]{0,30}(?:e[-+]?\d{1,4})?|nan|inf)?"?\s*', re.IGNORECASE
)
LOSS_COLUMNS = frozenset(
    ("loss", "train_loss", "eval_loss", "train/loss", "train/train_loss", "eval/loss")
)


def title_of_kind(kind: InputKind) -> str:
    """The name of a kind of input as a report writes it."""
    readers = config_readers()
    return readers[kind].title if kind in readers else FILE_KIND_TITLES[kind]


def recognise_kinds(
    path: str | PathLike[str], trained_by: TrainerName | None = None
) -> tuple[InputKind, ...]:
    """The kinds of input at this path, the main one first.

    `trained_by` names the program that reads a file of settings, where the user says it.

    Raises UsageError for what is none of what truetune looks at, and for a path that is not there.
    """
    where = Path(path)
    if where.is_dir():
        found = tuple(
            dict.fromkeys(_recognise_folder(where))
        ) or _data_kind_if_tokenized_cache_below(where)
        if not found:
            raise UsageError(
                f"{where}: found {_describe_unknown_folder(where)}; expected {ACCEPTED_INPUTS}"
            )
        return found
    if where.is_file():
        return (_recognise_file(where, trained_by),)
    raise UsageError(f"{where}: no such file or folder{did_you_mean_path(where)}")


def _recognise_folder(folder: Path) -> Iterator[InputKind]:
    """The kinds of a folder, the main one first."""
    names = _names_in_folder(folder)
    # Its shards are Parquet or Arrow files: without this they would be taken for rows of text.
    if "manifest.json" in names and _holds_encoded_data(folder):
        yield "encoded"
        return
    yield from _recognise_weights_and_logs(folder, names)
    if names & TOKENIZER_FILES:
        yield "tokenizer"
    elif is_model_without_weights(folder):
        yield "model config"
    if "truetune.yaml" in names:
        yield "truetune"
    if _holds_rows(folder, names):
        yield "data"
    yield from _kinds_of_source_in_folder(folder, names)


def _recognise_weights_and_logs(folder: Path, names: set[str]) -> Iterator[InputKind]:
    """The kinds run, adapter and model of a folder, by weights and logs.

    The folder of a run also holds its last weights, and a checkpoint also a log: with checkpoints in it, it is mainly a
    run, else mainly what its weights are. `recognise_kinds` drops the second `run`.
    """
    is_logged = _holds_training_log(folder, names)
    if is_logged and any(CHECKPOINT_FOLDER.fullmatch(name) for name in names):
        yield "run"
    if "adapter_config.json" in names:
        yield "adapter"
    if "config.json" in names and any(WEIGHT_FILE.fullmatch(name) for name in names):
        yield "model"
    if is_logged:
        yield "run"


def is_model_without_weights(folder: Path) -> bool:
    """Does it hold the config.json of a model, and no file of weights? Who asks for help shares no more than that."""
    names = _names_in_folder(folder)
    if "config.json" not in names or "adapter_config.json" in names:
        return False
    if any(WEIGHT_FILE.fullmatch(name) or name.endswith(WEIGHT_SUFFIXES) for name in names):
        return False
    config = _read_json_or_none(folder / "config.json", whole=True)
    # Other programs have a config.json too. `save_pretrained` writes both keys; a model by hand may lack one.
    return isinstance(config, dict) and (
        isinstance(config.get("model_type"), str) or isinstance(config.get("architectures"), list)
    )


def _data_kind_if_tokenized_cache_below(folder: Path) -> tuple[InputKind, ...]:
    """The kind `data` if a subfolder holds a tokenized data set in the cache that trainers keep,
    under a folder named by a hash; empty otherwise.
    """
    saved = (
        folder.glob(f"{depth}{name}")
        for depth in ("*/", "*/*/")
        for name in ("state.json", "dataset_dict.json")
    )
    return ("data",) if next(chain.from_iterable(saved), None) else ()


def _names_in_folder(folder: Path) -> set[str]:
    """The names in a folder, at most MAX_FOLDER_ENTRIES. Raises UsageError if it can't be read."""
    try:
        return {entry.name for entry in islice(folder.iterdir(), MAX_FOLDER_ENTRIES)}
    except OSError as error:
        raise UsageError(f"{folder}: {error.strerror}") from None


def _holds_training_log(folder: Path, names: set[str]) -> bool:
    """Does a folder hold a training log: of the trainer, TensorBoard, W&B, or in rows?"""
    if "trainer_state.json" in names or any(map(_is_tensorboard_or_wandb_file, names)):
        return True
    for name, pattern in LOG_FOLDERS.items():
        if name in names and next((folder / name).rglob(pattern), None) is not None:
            return True
    for name in names:
        # Trainers write the state into checkpoints alone until the run has ended.
        is_checkpoint = CHECKPOINT_FOLDER.fullmatch(name) is not None
        if is_checkpoint and (folder / name / "trainer_state.json").is_file():
            return True
    # Last, because these files are opened.
    return any(
        _do_first_rows_look_like_training_log(folder / name)
        for name in sorted(names)
        if Path(name).suffix in (".jsonl", ".csv")
    )


def _is_tensorboard_or_wandb_file(name: str) -> bool:
    """Is it an event file of TensorBoard or W&B?"""
    return TENSORBOARD_FILE.fullmatch(name) is not None or name.endswith(".wandb")


def _holds_encoded_data(folder: Path) -> bool:
    """Does a folder hold data that `truetune encode` wrote, by its manifest?"""
    head = _read_json_or_none(folder / "manifest.json", whole=True)
    return isinstance(head, dict) and "format" in head and "shards" in head


def _holds_rows(folder: Path, names: set[str]) -> bool:
    """Does a folder hold rows of data, by the names and heads of its files?"""
    if (folder / "dataset_dict.json").is_file() or (folder / "state.json").is_file():
        return True
    return any(_may_hold_rows(folder / name) for name in sorted(names))


def _may_hold_rows(path: Path) -> bool:
    """May a file hold rows of data, and is no log and no metadata?"""
    suffix = _suffix_uncompressed(path)
    if path.name in METADATA_FILES or not path.is_file():
        return False
    if suffix in TABLE_SUFFIXES:
        return True
    if suffix in ROW_SUFFIXES:
        is_log = (
            _do_first_rows_look_like_training_log(path)
            or _is_nvidia_smi_csv(path)
            or _is_table_of_other_run_quantities(path)
        )
        return path.suffix in COMPRESSED or not is_log
    return suffix == ".json" and (path.suffix in COMPRESSED or _read_head(path).lstrip()[:1] == "[")


def _kinds_of_source_in_folder(folder: Path, names: set[str]) -> Iterator[InputKind]:
    """The kinds of source in a folder: scripts and notebooks, commands."""
    files = {Path(name).suffix for name in names}
    if ".py" not in files and ".ipynb" not in files:
        files = {path.suffix for path in islice(folder.glob("*/*"), MAX_FOLDER_ENTRIES)}
    if ".py" in files:
        yield "source"
    if ".ipynb" in files:
        yield "notebook"


def _recognise_file(path: Path, trained_by: TrainerName | None) -> InputKind:
    """What a file is: by its name where that is enough, else by its first bytes. Raises UsageError."""
    by_name = _recognise_by_name_or_first_rows(path)
    if by_name is not None:
        return by_name
    suffix = _suffix_uncompressed(path)
    if suffix in (".yaml", ".yml", ".toml"):
        return _recognise_settings(path, trained_by)
    head = _read_head(path).lstrip("\ufeff \t\r\n")
    if suffix == ".txt" and "\0" not in head and CONSOLE_LINE.match(head):
        return "log"
    if suffix == ".ipynb" or _is_notebook_text(suffix, head):
        return "notebook"
    if head[:1] == "[":
        return "data"
    if head[:1] == "{":
        return _recognise_json_object(path, head, trained_by)
    if suffix == "":
        return _recognise_settings(path, trained_by)
    raise UsageError(
        f"{path}: found {_describe_unknown_file(path, head)}; expected {ACCEPTED_INPUTS}"
    )


def _is_notebook_text(suffix: str, head: str) -> bool:
    """Is it a notebook under another name? Saved from a browser, it has lost its suffix."""
    return suffix in ("", ".json") and '"nbformat"' in head and '"cells"' in head


def _recognise_by_name_or_first_rows(path: Path) -> InputKind | None:
    """What a file is, where its name and at most its first rows say it."""
    suffix = _suffix_uncompressed(path)
    if suffix == ".py":
        return "source"
    if is_command_file(path):
        return "commands"
    if is_modelfile_name(path):
        return "modelfile"
    if _is_log_by_name(path, suffix):
        return "log"
    if path.suffix in COMPRESSED or suffix in TABLE_SUFFIXES:
        return "data"
    if suffix in ROW_SUFFIXES:
        is_log = (
            _do_first_rows_look_like_training_log(path)
            or _is_nvidia_smi_csv(path)
            or _is_table_of_other_run_quantities(path)
        )
        return "log" if is_log else "data"
    return None


def _is_log_by_name(path: Path, suffix: str) -> bool:
    """Does the name of a file say that it is a log, and is a console log not empty?"""
    # An empty console log has no curves: it continues, and the error says that it is empty.
    has_console_text = suffix in CONSOLE_SUFFIXES and path.stat().st_size > 0
    return _is_tensorboard_or_wandb_file(path.name) or suffix == ".wandb" or has_console_text


def _recognise_json_object(path: Path, head: str, trained_by: TrainerName | None) -> InputKind:
    """A file that begins with a JSON object: rows one a line, the trainer's log, or settings."""
    first, _, rest = head.partition("\n")
    if rest.lstrip()[:1] == "{" and _parse_json_or_none(first) is not None:
        return "log" if _do_first_rows_look_like_training_log(path) else "data"
    if '"log_history"' in head or path.name == "trainer_state.json":
        return "log"
    if path.stat().st_size > located_document.MAX_CONFIG_BYTES:
        return "data"
    return _recognise_settings(path, trained_by)


def _recognise_settings(path: Path, trained_by: TrainerName | None) -> InputKind:
    """What a file of keys and values is. Raises UsageError where it is no settings and no rows."""
    if path.suffix == ".toml" and OWN_TOML_TABLE in located_document.read_text_of_config_size(path):
        return "truetune"
    try:
        value = located_document.read_located_document(path).value
    except SpecError as error:
        raise UsageError(f"{error}; expected {ACCEPTED_INPUTS}") from None
    stack = identify_stack(value, path, trained_by)
    if stack is not None:
        return stack
    if path.suffix == ".toml":
        raise UsageError(f"{path}: there is no [tool.truetune] in it; expected {ACCEPTED_INPUTS}")
    kind = _kind_of_document_without_stack(path, value)
    if kind is not None:
        return kind
    unknown = _describe_unknown_file(path, "", value)
    raise UsageError(f"{path}: found {unknown}; expected {ACCEPTED_INPUTS}")


def _kind_of_document_without_stack(path: Path, value: Any) -> InputKind | None:
    """What a file is whose keys are those of no stack: a launcher's, rows, settings; None where it is nothing known."""
    foreign = name_kind_of_file_without_run_settings(value)
    launch_kind = LAUNCH_FILE_KINDS.get(foreign or "")
    if launch_kind is not None:
        return launch_kind
    if _is_list_of_rows(value):
        return "data"
    if advise_how_to_identify(value):
        return "settings"
    if path.suffix == ".json" and foreign is None and _holds_list_of_rows(value):
        return "data"
    return None


def _is_list_of_rows(value: Any) -> bool:
    """Is it a list of objects and of nothing else?"""
    return isinstance(value, list) and bool(value) and all(isinstance(i, dict) for i in value)


def _holds_list_of_rows(value: Any) -> bool:
    """Is one of its values a list of objects, as in `{"data": [{...}]}`?"""
    if not isinstance(value, dict):
        return False
    return any(
        isinstance(item, list) and item and isinstance(item[0], dict) for item in value.values()
    )


def _is_nvidia_smi_csv(path: Path) -> bool:
    """Is it what `nvidia-smi --query-gpu` writes as CSV, by its columns?"""
    if path.suffix != ".csv" or not path.is_file():
        return False
    columns = _read_head(path).partition("\n")[0].lower()
    return "memory.used" in columns or "utilization.gpu" in columns


def _do_first_rows_look_like_training_log(path: Path) -> bool:
    """Do its first rows hold a loss with a step, an epoch or a learning rate?"""
    if path.suffix in COMPRESSED or not path.is_file():
        return False
    lines = [line for line in _read_head(path).splitlines() if line.strip()][:LOG_ROWS_READ]
    if _suffix_uncompressed(path) in (".csv", ".tsv"):
        header = re.split(r"[,\t]", lines[0]) if lines else []
        # An export of W&B names the run before each quantity: `bright-sun-14 - train/loss`.
        columns = {name.strip().strip('"').lower().rpartition(" - ")[2] for name in header}
        return bool(columns & LOSS_COLUMNS) and bool(columns & STEP_COLUMNS)
    rows = [row for row in map(_parse_json_or_none, lines) if isinstance(row, dict)]
    # Half of the rows: trainers log other things between (samples, the summary at the end).
    return bool(rows) and 2 * sum(map(_is_log_row, rows)) >= len(rows)


def _is_table_of_other_run_quantities(path: Path) -> bool:
    """Is it a table of other quantities of a run, by its steps: timings, memory, rewards?

    It is looked at by itself, and makes no folder the folder of a run.
    """
    if path.suffix.lower() not in (".csv", ".tsv") or not path.is_file():
        return False
    lines = [line for line in _read_head(path).splitlines() if line.strip()][:LOG_ROWS_READ]
    header = re.split(r"[,\t]", lines[0]) if lines else []
    columns = {name.strip().strip('"').lower() for name in header}
    return bool(columns & COUNTED_STEPS) and _cells_are_numbers_or_empty(lines)


def _cells_are_numbers_or_empty(lines: list[str]) -> bool:
    """Are all cells below the header numbers or empty? Rows to train on hold texts; quantities of a run are numbers."""
    cells = [re.split(r"[,\t]", line) for line in lines[1:]]
    # The last line of what was read may be cut.
    whole = cells[:-1] if len(cells) == LOG_ROWS_READ - 1 else cells
    return (
        len(lines[0].split(",")) > 1
        and bool(whole)
        and all(NUMBER_CELL.fullmatch(cell) for row in whole for cell in row)
    )


def _is_log_row(row: Mapping[str, Any]) -> bool:
    """Does it hold a loss and a step, and no text? Rows of some data sets carry the loss that another model had."""
    # verl writes `{"step": 1, "data": {"critic/score/mean": 0.3, ...}}`.
    inner = row.get("data")
    if set(row) == {"step", "data"} and isinstance(inner, dict):
        return any("/" in str(name) for name in inner)
    keys = set(row)
    return bool(keys & LOSS_COLUMNS and keys & STEP_COLUMNS and not keys & CONTENT_COLUMNS)


CONTENT_COLUMNS = frozenset(
    ("messages", "conversations", "prompt", "completion", "text", "instruction", "chosen")
)


def _suffix_uncompressed(path: Path) -> str:
    """The last suffix of a file's name, without `.gz` and the like."""
    name = path.with_suffix("") if path.suffix.lower() in COMPRESSED else path
    return name.suffix.lower()


def _read_head(path: Path) -> str:
    """The beginning of a file as text; empty if it can't be read."""
    try:
        with path.open("rb") as file:
            return file.read(HEAD_BYTES).decode("utf-8", "replace")
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None


def _read_json_or_none(path: Path, *, whole: bool = False) -> Any:
    """The JSON in a file, of its head or `whole`; None if it is none."""
    return _parse_json_or_none(
        path.read_text(encoding="utf-8", errors="replace") if whole else _read_head(path)
    )


def _parse_json_or_none(text: str) -> Any:
    """The value of a JSON text; None if it is no JSON."""
    try:
        return parse_json(text, RESULT)
    except ValueError:
        return None


def _describe_unknown_folder(folder: Path) -> str:
    """A phrase on a folder that is none of the known kinds."""
    names = sorted(_names_in_folder(folder))
    return f"a folder with {format_name_list(names)}" if names else "an empty folder"


def _describe_unknown_file(path: Path, head: str, value: Any = None) -> str:
    """A phrase on a file that is none of the known kinds."""
    if (name := name_kind_of_file_without_run_settings(value)) is not None:
        return name
    if isinstance(value, dict) and value:
        return f"the keys {format_name_list(value)}"
    if isinstance(value, list):
        return "a list"
    if "\ufffd" in head or "\0" in head:
        return "a binary file"
    return (
        "an empty file"
        if path.stat().st_size == 0
        else f"a file of the kind {path.suffix or 'without a suffix'}"
    )
