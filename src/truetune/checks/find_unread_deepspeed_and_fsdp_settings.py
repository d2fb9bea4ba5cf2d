"""Finds DeepSpeed and FSDP settings beside a launch that nothing leads to, so that they have no
effect.

A file of settings acts only where an option, an argument, another file or a variable that somebody reads names it. Any
line that speaks of sharding at all counts as a lead, whatever it does: what is left is a file that nothing can reach.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from truetune.errors import TruetuneError
from truetune.parsing.input_limits import SETTINGS, InputLimitError
from truetune.parsing.read_files_within_limits import read_bytes_within_limit
from truetune.settings import located_document

MAX_FILES = 60
"""Files of a folder that are read. Chosen, not measured: projects of one training have fewer"""
SETTINGS_SUFFIXES = (".json", ".yaml", ".yml")
TEXT_SUFFIXES = (*SETTINGS_SUFFIXES, ".py", ".ipynb", ".sh", ".bash", ".sbatch", ".slurm", ".toml",
                 ".cfg", ".ini", ".env", ".mk", "")  # fmt: skip
LOG_SUFFIXES = (".log", ".out", ".err", ".txt")
OF_SHARDING = re.compile(r"deepspeed|fsdp|fully_?sharded|zero[-_ ]?[123]|zero_stage|\bds_", re.I)
SAYS_NOTHING = re.compile(
    r"^\s*(?:#|//)|(?:pip|uv|conda|poetry)\b.*\b(?:install|add)\b|deepspeed\s*[=~><]=|"
    r"(?:deepspeed|fsdp)\w*[\"']?\s*[:=]\s*(?:null|None|~|\"\"|''|\[\s*\]|[Ff]alse)\s*,?\s*$",
    re.I,
)
"""Comments, installations, and settings that switch sharding off"""
ASSIGNMENT = re.compile(r"^\s*(?:export\s+|ENV\s+)?(?P<name>[A-Z][A-Z0-9_]*)[= ](?P<value>\S+)\s*$")
READ_BY_LIBRARIES = ("ACCELERATE_", "FSDP_", "AXOLOTL_", "LLAMAFACTORY_")
"""Beginnings of variables that a library reads by itself"""
PLAIN_MODE = re.compile(r"DistributedType\.MULTI_GPU\b|distributed_type\W{1,4}MULTI_GPU\b")
"""What accelerate prints of a run by DDP alone"""
DEFAULTS_USED = re.compile(r"values were not passed to `accelerate launch` and had defaults")
"""What accelerate prints where it has no configuration of its own"""


class ShardingFile(NamedTuple):
    """A file that tells how weights, gradients or states are shared out."""

    path: Path
    what: str
    """`ZeRO stage 3`, `FSDP`"""
    is_deepspeed: bool
    """Is it DeepSpeed's own file, and not one of accelerate's?"""


class UnreadFile(NamedTuple):
    """A sharding file that nothing leads to."""

    file: ShardingFile
    variable: str
    """The variable that holds its name, and that nobody reads; empty where none does"""
    line: int
    """Of that variable"""
    holder: str
    """The file in which it is set"""
    plain_mode: str
    """The log that says that the run is plain DDP; empty where none does"""
    has_no_defaults: bool
    """Does a log say that accelerate had no configuration?"""


def find_unread_sharding_file(folder: Path) -> UnreadFile | None:
    """The sharding file of a folder, that nothing there leads to; None where a line speaks of sharding."""
    files = _first_files_below(folder)
    sharding = [one for path in files if (one := _read_sharding_file(path)) is not None]
    if not sharding:
        return None
    holders = _find_unread_variables(files, sharding)
    if holders is None:
        return None
    logs = {path: _text_of_small_file(path) for path in files if path.suffix in LOG_SUFFIXES}
    plain = next((path.name for path, text in logs.items() if PLAIN_MODE.search(text)), "")
    no_defaults = any(DEFAULTS_USED.search(text) for text in logs.values())
    holder = holders[0] if holders else _Holder("", 0, Path())
    return UnreadFile(
        sharding[0], holder.variable, holder.line, str(holder.file), plain, no_defaults
    )


class _Holder(NamedTuple):
    """A variable that holds the name of a sharding file, and that nobody reads."""

    variable: str
    line: int
    file: Path


def _find_unread_variables(files: list[Path], sharding: list[ShardingFile]) -> list[_Holder] | None:
    """The variables that name sharding files and that nobody reads; None if a line may lead to one
    of these files.
    """
    known = {one.path for one in sharding}
    names = re.compile("|".join(re.escape(one.path.name) for one in sharding))
    texts = {
        path: _text_of_small_file(path)
        for path in files
        if path not in known and path.suffix in TEXT_SUFFIXES
    }
    holders: list[_Holder] = []
    for path, text in texts.items():
        for number, line in enumerate(text.splitlines(), 1):
            if not _speaks_of_sharding(line, names):
                continue
            variable = _variable_set_and_never_read(line, texts)
            if not variable:
                return None
            holders.append(_Holder(variable, number, path))
    return holders


def _speaks_of_sharding(line: str, names: re.Pattern[str]) -> bool:
    """Does a line that does something name sharding, or a file of its settings?"""
    if SAYS_NOTHING.search(line):
        return False
    return OF_SHARDING.search(line) is not None or names.search(line) is not None


def _first_files_below(folder: Path) -> list[Path]:
    """The first files of a folder and of the folders in it."""
    try:
        files = (path for pattern in ("*", "*/*") for path in sorted(folder.glob(pattern)))
        return list(islice((path for path in files if path.is_file()), MAX_FILES))
    except OSError:
        return []


def _text_of_small_file(path: Path) -> str:
    """The text of a file; empty where it is large, or can't be read."""
    try:
        return read_bytes_within_limit(path, SETTINGS).decode("utf-8", "replace")
    except (OSError, InputLimitError):
        return ""


def _read_sharding_file(path: Path) -> ShardingFile | None:
    """The sharding settings in a file; None if it is no file of DeepSpeed's or accelerate's."""
    if path.suffix not in SETTINGS_SUFFIXES or not OF_SHARDING.search(
        _text_with_zero_key_as_deepspeed(path)
    ):
        return None
    try:
        values = located_document.read_located_document(path).value
    except (TruetuneError, OSError, ValueError):
        return None
    if not isinstance(values, Mapping):
        return None
    zero = values.get("zero_optimization")
    if isinstance(zero, Mapping) and zero.get("stage") in (2, 3):
        return ShardingFile(path, f"ZeRO stage {zero['stage']}", is_deepspeed=True)
    kind = str(values.get("distributed_type", "")).upper()
    if kind in ("FSDP", "DEEPSPEED"):
        return ShardingFile(path, "FSDP" if kind == "FSDP" else "DeepSpeed", is_deepspeed=False)
    return None


def _text_with_zero_key_as_deepspeed(path: Path) -> str:
    """The text of a file, in which DeepSpeed's own key counts as a word of sharding."""
    return _text_of_small_file(path).replace("zero_optimization", "deepspeed")


def _variable_set_and_never_read(line: str, texts: Mapping[Path, str]) -> str:
    """The variable that a line sets and nobody reads; empty where it does something else, or somebody reads it."""
    match = ASSIGNMENT.match(line)
    if match is None or match["name"].startswith(READ_BY_LIBRARIES):
        return ""
    name = match["name"]
    reads = re.compile(rf"\$\{{?{name}\b|[\"']{name}[\"']|\b{name}\b(?!\s*=)")
    is_read = any(reads.search(one) for one in _lines_besides(line, texts))
    return "" if is_read else name


def _lines_besides(line: str, texts: Mapping[Path, str]) -> Iterator[str]:
    """The lines of all files besides this one."""
    for text in texts.values():
        yield from (one for one in text.splitlines() if one != line)
