"""What a path is: told by content, from the heads of files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import chain, islice
from os import PathLike
from pathlib import Path
from typing import Any, Literal

from truetune.errors import SpecError, UsageError, name_list
from truetune.parsing.decompression import COMPRESSED_SUFFIXES
from truetune.parsing.json_reader import parse_json
from truetune.parsing.limits import RESULT
from truetune.parsing.modelfile import is_modelfile
from truetune.parsing.shell_commands import is_command_file
from truetune.spec import located
from truetune.spec.config import Stack
from truetune.spec.near import near_path
from truetune.spec.stacks import ACCELERATE, DEEPSPEED, foreign, stack_of, what_would_tell
from truetune.spec.stacks.registry import config_readers
from truetune.trainers.trainer_facts import TrainerName

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
Kind = FileKind | Stack
"""What a path is; settings whose program is known are called by its name"""
OF_FILES: Mapping[Kind, str] = {
    "data": "data", "encoded": "encoded data", "tokenizer": "tokenizer", "model": "model",
    "model config": "model without its weights", "adapter": "adapter",
    "run": "run folder", "log": "log of a run", "source": "Python source", "notebook": "notebook",
    "commands": "shell script", "settings": "settings of a program that is not known",
    "accelerate": "accelerate launch configuration", "deepspeed": "DeepSpeed configuration",
    "modelfile": "Ollama Modelfile",
}  # fmt: skip
"""As a report calls them; `title_of_kind` knows those of programs too"""
ACCEPTED = (
    "data (JSONL, JSON, CSV, Parquet, Arrow), a tokenizer, model or adapter folder, a run folder or"
    " its log, the settings of truetune, TRL, Axolotl or LLaMA-Factory, Python files, notebooks,"
    " shell scripts or a Modelfile of Ollama"
)
HEAD = 1 << 16
"""Bytes of a file that are looked at"""
MANY = 20_000
"""Entries of a folder that are looked at"""
OF_LAUNCH: Mapping[str, Kind] = {ACCELERATE: "accelerate", DEEPSPEED: "deepspeed"}
"""Files that say how a run is spread over GPUs"""
CONSOLE = frozenset((".log", ".out", ".err"))
"""What a run printed"""
PRINTED = re.compile(r"[^\[{]|\{'|\[[A-Za-z0-9][^\]\n]*\]")
"""How a text begins that is no JSON: `Epoch 1`, `{'loss': 2.1}`, `[INFO|trainer.py:2134]`"""
TABLES = frozenset((".parquet", ".arrow", ".feather", ".ipc"))
ROWS = frozenset((".jsonl", ".ndjson", ".csv", ".tsv", *TABLES))
PACKED = frozenset(COMPRESSED_SUFFIXES)
DESCRIBES = frozenset((
    "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
    "added_tokens.json", "vocab.json", "adapter_config.json", "trainer_state.json", "preprocessor_config.json",
    "processor_config.json", "chat_template.json", "all_results.json", "train_results.json", "eval_results.json",
    "README.md", "dataset_info.json", "dataset_infos.json", "dataset_dict.json", "state.json", "manifest.json",
    "model.safetensors.index.json", "pytorch_model.bin.index.json", "trainer_log.jsonl",
))  # fmt: skip
"""JSON files in a folder that are no rows"""
TOKENIZERS = frozenset(
    ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "spiece.model", "tekken.json")
)
WEIGHTS = re.compile(
    r"(model|pytorch_model|consolidated)[-.\w]*\.(safetensors|bin|gguf)(\.index\.json)?|.+\.gguf"
)
WEIGHT_SUFFIXES = (".safetensors", ".bin", ".gguf", ".pt", ".pth", ".ckpt", ".h5", ".msgpack")
EVENTS = re.compile(r"events\.out\.tfevents\..*")
BELOW = {"runs": "events.out.tfevents.*", "logs": "events.out.tfevents.*", "wandb": "*.wandb"}
"""Folders in that of a run, and the logs that stand in them"""
CHECKPOINT = re.compile(r"checkpoint-\d+")
STEPS = frozenset(
    ("step", "global_step", "epoch", "learning_rate", "_step", "current_steps", "train/global_step")
)
LOSSES = frozenset(
    ("loss", "train_loss", "eval_loss", "train/loss", "train/train_loss", "eval/loss")
)


def title_of_kind(kind: Kind) -> str:
    """What a report calls a path of this kind."""
    readers = config_readers()
    return readers[kind].title if kind in readers else OF_FILES[kind]


def recognise(path: str | PathLike[str], trained_by: TrainerName | None = None) -> tuple[Kind, ...]:
    """What stands at this path, what it mainly is first.

    `trained_by` names the program that reads a file of settings, where the user says it.

    Raises UsageError for what is none of what truetune looks at, and for a path that is not there.
    """
    where = Path(path)
    if where.is_dir():
        found = tuple(dict.fromkeys(_folder(where))) or _caches(where)
        if not found:
            raise UsageError(f"{where}: found {_listed(where)}; expected {ACCEPTED}")
        return found
    if where.is_file():
        return (_file(where, trained_by),)
    raise UsageError(f"{where}: no such file or folder{near_path(where)}")


def _folder(folder: Path) -> Iterator[Kind]:
    names = _names(folder)
    if "manifest.json" in names and _encoded(folder):
        yield "encoded"
        return
    logged = _logged(folder, names)
    if logged and any(CHECKPOINT.fullmatch(name) for name in names):
        yield "run"
    if "adapter_config.json" in names:
        yield "adapter"
    if "config.json" in names and any(WEIGHTS.fullmatch(name) for name in names):
        yield "model"
    if logged:
        yield "run"
    if names & TOKENIZERS:
        yield "tokenizer"
    elif is_model_without_weights(folder):
        yield "model config"
    if "truetune.yaml" in names:
        yield "truetune"
    if _rows(folder, names):
        yield "data"
    yield from _sources(folder, names)


def is_model_without_weights(folder: Path) -> bool:
    """Does it hold the config.json of a model, and no file of weights? Who asks for help shares no more than that."""
    names = _names(folder)
    if "config.json" not in names or "adapter_config.json" in names:
        return False
    if any(WEIGHTS.fullmatch(name) or name.endswith(WEIGHT_SUFFIXES) for name in names):
        return False
    config = _json(folder / "config.json", whole=True)
    # Other programs have a config.json too. `save_pretrained` writes both keys; a model by hand may lack one.
    return isinstance(config, dict) and (
        isinstance(config.get("model_type"), str) or isinstance(config.get("architectures"), list)
    )


def _caches(folder: Path) -> tuple[Kind, ...]:
    """Trainers keep what they tokenized in folders that are named by a hash, below one that the user names."""
    saved = (
        folder.glob(f"{depth}{name}")
        for depth in ("*/", "*/*/")
        for name in ("state.json", "dataset_dict.json")
    )
    return ("data",) if next(chain.from_iterable(saved), None) else ()


def _names(folder: Path) -> set[str]:
    try:
        return {entry.name for entry in islice(folder.iterdir(), MANY)}
    except OSError as error:
        raise UsageError(f"{folder}: {error.strerror}") from None


def _logged(folder: Path, names: set[str]) -> bool:
    """Are there curves: of the trainer, of TensorBoard, of W&B, or in rows of a log?"""
    if "trainer_state.json" in names or any(
        EVENTS.fullmatch(name) or name.endswith(".wandb") for name in names
    ):
        return True
    if any(
        next((folder / name).rglob(sign), None) for name, sign in BELOW.items() if name in names
    ):
        return True
    checkpoints = (name for name in names if CHECKPOINT.fullmatch(name))
    if any((folder / name / "trainer_state.json").is_file() for name in checkpoints):
        return True
    return any(
        _is_log(folder / name) for name in sorted(names) if Path(name).suffix in (".jsonl", ".csv")
    )


def _encoded(folder: Path) -> bool:
    head = _json(folder / "manifest.json", whole=True)
    return isinstance(head, dict) and "format" in head and "shards" in head


def _rows(folder: Path, names: set[str]) -> bool:
    if (folder / "dataset_dict.json").is_file() or (folder / "state.json").is_file():
        return True
    return any(_may_hold_rows(folder / name) for name in sorted(names))


def _may_hold_rows(path: Path) -> bool:
    suffix = _suffix(path)
    if path.name in DESCRIBES or not path.is_file():
        return False
    if suffix in TABLES:
        return True
    if suffix in ROWS:
        return path.suffix in PACKED or not _is_log(path)
    return suffix == ".json" and (path.suffix in PACKED or _head(path).lstrip()[:1] == "[")


def _sources(folder: Path, names: set[str]) -> Iterator[Kind]:
    files = {Path(name).suffix for name in names}
    if ".py" not in files and ".ipynb" not in files:
        files = {path.suffix for path in islice(folder.glob("*/*"), MANY)}
    if ".py" in files:
        yield "source"
    if ".ipynb" in files:
        yield "notebook"


def _file(path: Path, trained_by: TrainerName | None) -> Kind:
    suffix = _suffix(path)
    if suffix == ".py":
        return "source"
    if is_command_file(path):
        return "commands"
    if is_modelfile(path):
        return "modelfile"
    if EVENTS.fullmatch(path.name) or suffix == ".wandb":
        return "log"
    if suffix in CONSOLE and path.stat().st_size:
        return "log"
    if path.suffix in PACKED or suffix in TABLES:
        return "data"
    if suffix in (".jsonl", ".ndjson", ".csv", ".tsv"):
        return "log" if _is_log(path) else "data"
    if suffix in (".yaml", ".yml", ".toml"):
        return _settings(path, trained_by)
    head = _head(path).lstrip("\ufeff \t\r\n")
    if suffix == ".txt" and "\0" not in head and PRINTED.match(head):
        return "log"
    if suffix == ".ipynb" or (
        suffix in ("", ".json") and '"nbformat"' in head and '"cells"' in head
    ):
        return "notebook"
    if head[:1] == "[":
        return "data"
    if head[:1] == "{":
        return _object(path, head, trained_by)
    if suffix == "":
        return _settings(path, trained_by)
    raise UsageError(f"{path}: found {_said(path, head)}; expected {ACCEPTED}")


def _object(path: Path, head: str, trained_by: TrainerName | None) -> Kind:
    """A file that begins with a JSON object: rows one a line, the trainer's log, or settings."""
    first, _, rest = head.partition("\n")
    if rest.lstrip()[:1] == "{" and _parsed(first) is not None:
        return "log" if _is_log(path) else "data"
    if '"log_history"' in head or path.name == "trainer_state.json":
        return "log"
    if path.stat().st_size > located.LARGEST:
        return "data"
    return _settings(path, trained_by)


def _settings(path: Path, trained_by: TrainerName | None) -> Kind:
    if path.suffix == ".toml":
        if "[tool.truetune" in located.text_of(path):
            return "truetune"
        raise UsageError(f"{path}: there is no [tool.truetune] in it; expected {ACCEPTED}")
    try:
        value = located.read(path).value
    except SpecError as error:
        raise UsageError(f"{error}; expected {ACCEPTED}") from None
    stack = stack_of(value, path, trained_by)
    if stack is not None:
        return stack
    if (kind := OF_LAUNCH.get(foreign(value) or "")) is not None:
        return kind
    if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        return "data"
    if what_would_tell(value):
        return "settings"
    rows = (
        [item for item in value.values() if isinstance(item, list)]
        if isinstance(value, dict)
        else []
    )
    if (
        path.suffix == ".json"
        and foreign(value) is None
        and any(r and isinstance(r[0], dict) for r in rows)
    ):
        return "data"
    raise UsageError(f"{path}: found {_said(path, '', value)}; expected {ACCEPTED}")


def _is_log(path: Path) -> bool:
    """Do its first rows hold a loss with a step, an epoch or a learning rate?"""
    if path.suffix in PACKED or not path.is_file():
        return False
    lines = [line for line in _head(path).splitlines() if line.strip()][:20]
    if _suffix(path) in (".csv", ".tsv"):
        named = (
            {name.strip().strip('"').lower() for name in re.split(r"[,\t]", lines[0])}
            if lines
            else set()
        )
        return bool(named & LOSSES) and bool(named & STEPS)
    rows = [row for line in lines if isinstance(row := _parsed(line), dict)]
    signs = [
        row for row in rows if set(row) & LOSSES and set(row) & STEPS and not set(row) & _CONTENT
    ]
    return bool(rows) and 2 * len(signs) >= len(rows)


_CONTENT = frozenset(
    ("messages", "conversations", "prompt", "completion", "text", "instruction", "chosen")
)


def _suffix(path: Path) -> str:
    name = path.with_suffix("") if path.suffix.lower() in PACKED else path
    return name.suffix.lower()


def _head(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(HEAD).decode("utf-8", "replace")
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None


def _json(path: Path, *, whole: bool = False) -> Any:
    return _parsed(path.read_text(encoding="utf-8", errors="replace") if whole else _head(path))


def _parsed(text: str) -> Any:
    try:
        return parse_json(text, RESULT)
    except ValueError:
        return None


def _listed(folder: Path) -> str:
    names = sorted(_names(folder))
    return f"a folder with {name_list(names)}" if names else "an empty folder"


def _said(path: Path, head: str, value: Any = None) -> str:
    if (name := foreign(value)) is not None:
        return name
    if isinstance(value, dict) and value:
        return f"the keys {name_list(value)}"
    if isinstance(value, list):
        return "a list"
    if "\ufffd" in head or "\0" in head:
        return "a binary file"
    return (
        "an empty file"
        if path.stat().st_size == 0
        else f"a file of the kind {path.suffix or 'without a suffix'}"
    )
