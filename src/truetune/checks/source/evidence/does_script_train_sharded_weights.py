"""Says whether a script trains with sharded weights: by its code, the commands that start it, and
files beside it.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from truetune.errors import TruetuneError
from truetune.parsing.shell_commands import is_command_file, read_command_file
from truetune.settings import located_document
from truetune.settings.stacks.find_who_reads_config_or_starts_script import commands_that_launch
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

SHARDS = ("torch.*.FullyShardedDataParallel", "torch.*.fully_shard")
OF_FSDP = (*SHARDS, "accelerate.FullyShardedDataParallelPlugin")
CONFIGS = (".yaml", ".yml", ".json")
CONFIG_FOLDERS = frozenset(("accelerate", "config", "configs", "deepspeed", "ds", "fsdp", "launch"))
"""Folders beside a script whose files may set up its processes"""
NAMED = re.compile(r"(?P<fsdp>fsdp)|zero[-_ ]?(?:stage[-_ ]?)?3", re.I)
"""Names of configurations, and words of a script about itself"""
DENIED = re.compile(
    r"\b(?:no|not|without|instead|or|vs|never|unlike|optional\w*|support\w*)\b|n't\b|/", re.I
)
"""In a sentence that names FSDP: the script may run without it"""
LAUNCH_IN_WORDS = re.compile(r"\b(?:accelerate launch|deepspeed|torchrun)\b[^\n\"`]*")
"""A command that starts processes, in what a script says of itself"""
CONFIG_OF_LAUNCH = re.compile(r"--(?:config_file|deepspeed(?:_config)?)[ =]+\S+\.(?:ya?ml|json)\b")
"""The file of accelerate or DeepSpeed that a command names"""
MAX_HEAD_CHARS = 4_000
"""Of a script, in which it says how to start it"""
MAX_CONFIGS = 40
"""Files that are opened for one script; projects of examples hold some ten"""
MAX_CONFIG_BYTES = 65_536
"""Files of accelerate and DeepSpeed take some 2 KB; a JSON file of rows is longer"""


class Sharding(NamedTuple):
    """How the weights are divided among processes."""

    how: str
    """`ZeRO-3` or `FSDP`"""
    where: str
    """What says so"""
    certain: bool
    """The script or the command that starts it says so; a file that only lies beside it may belong to another"""


class ShardingConfig(NamedTuple):
    """What one configuration of accelerate or DeepSpeed says."""

    deepspeed: bool
    how: str
    """`ZeRO-3`, `FSDP`, or empty where every process holds the whole weights"""


def sharding_of_script(module: Module) -> Sharding | None:
    """How the weights of a script's model are sharded; None where nothing says that they are."""
    in_code = next(_shardings_in_code(module), None)
    if in_code is not None:
        return in_code
    if module.cells:
        # A notebook is one process: no launcher starts it, and files beside it set up other scripts.
        return None
    return sharding_by_commands_or_files_beside(
        Path(module.path)
    ) or _sharding_told_by_script_alone(module)


def sharding_by_commands_or_files_beside(script: Path) -> Sharding | None:
    """What the commands that start a script or settings say, else the files beside it; None where
    nothing does.
    """
    started = [
        sharding
        for command in commands_that_launch(script)
        for sharding in _sharding_of_command(command, script)
    ]
    if started:
        # One command that shards nothing shows that the script runs without it as well.
        return started[0] if all(one.how for one in started) else None
    beside = [(path, setup) for path, setup in _configs_beside(script) if setup is not None]
    if not beside or not all(setup.how for _, setup in beside):
        return None
    path, setup = beside[0]
    return Sharding(setup.how, path.name, certain=False)


def may_run_under_deepspeed(module: Module) -> bool:
    """May the script run under DeepSpeed, by its text, its commands or the files beside it?"""
    if module.mentions("deepspeed", "DeepSpeed", "DEEPSPEED"):
        return True
    if any("deepspeed" in command for command in commands_that_launch(Path(module.path))):
        return True
    return any(
        setup is not None and setup.deepspeed for _, setup in _configs_beside(Path(module.path))
    )


def sharding_by_deepspeed_file(named: object, beside: Path) -> Sharding | None:
    """How a DeepSpeed file that settings name shards the weights; None where it is not here, or
    shards nothing.
    """
    if not isinstance(named, str):
        return None
    setup = _first_readable_config_in_command([named], beside)
    return Sharding(setup.how, named, certain=True) if setup is not None and setup.how else None


def may_keep_float32_weights(path: Path) -> bool:
    """May a run keep a float32 copy of its weights, by its commands or the files beside it:
    DeepSpeed or FSDP?

    DeepSpeed's bf16 optimizer keeps one at each stage of ZeRO. FSDP under mixed precision holds
    float32 shards.
    """
    started = [
        *commands_that_launch(path),
        *_commands_in_shell_script(path),
        *_start_commands_at_script_head(path),
    ]
    by_commands = [_launch_may_keep_float32_weights(command, path) for command in started]
    if True in by_commands:
        return True
    # Commands that say all of the launch leave nothing to the files that only lie beside the script.
    if started and None not in by_commands:
        return False
    return any(
        setup is not None and _uses_deepspeed_or_fsdp(setup) for _, setup in _configs_beside(path)
    )


def _launch_may_keep_float32_weights(command: str, path: Path) -> bool | None:
    """May a run by this command keep a float32 copy of its weights?

    None where the command leaves that to files which it does not name.
    """
    if "deepspeed" in command or any(one.how for one in _sharding_of_command(command, path)):
        return True
    setup = _first_readable_config_in_command(command.replace("=", " ").split(), path)
    if setup is not None:
        return _uses_deepspeed_or_fsdp(setup)
    # A launch that names a file which is not here may set up either.
    return True if CONFIG_OF_LAUNCH.search(command) else None


def _uses_deepspeed_or_fsdp(setup: ShardingConfig) -> bool:
    """Does a configuration set up DeepSpeed, at any stage, or FSDP?"""
    return setup.deepspeed or bool(setup.how)


def _commands_in_shell_script(path: Path) -> list[str]:
    """The commands of a shell script or job that is judged itself."""
    if not is_command_file(path):
        return []
    try:
        return [" ".join(command.words) for command in read_command_file(path).commands]
    except TruetuneError:
        return []


def _start_commands_at_script_head(path: Path) -> list[str]:
    """The commands at the head of a script by which it says to start it: in its docstring or its
    comments.
    """
    if path.suffix != ".py":
        return []
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            head = file.read(MAX_HEAD_CHARS)
    except OSError:
        return []
    lines = (match[0] for match in LAUNCH_IN_WORDS.finditer(head.replace("\\\n", " ")))
    return [line for line in lines if path.name in line]


def _shardings_in_code(module: Module) -> Iterator[Sharding]:
    """What the code itself says of sharding: FSDP's wrappers, and arguments of trainers and
    plug-ins.
    """
    for call in module.calls(*OF_FSDP):
        yield Sharding("FSDP", module.text_of(call.node.func), certain=True)
    for call in module.calls("accelerate.DeepSpeedPlugin"):
        if module.flow.value(call.argument(2, "zero_stage")) == 3:
            yield Sharding("ZeRO-3", "DeepSpeedPlugin(zero_stage=3)", certain=True)
    for node in module.nodes(ast.Dict):
        if _zero_stage_of_deepspeed(module.flow.value(node)) == 3:
            yield Sharding("ZeRO-3", "zero_optimization: {stage: 3}", certain=True)
    for call in module.all_calls:
        yield from _shardings_in_arguments(module, call)


def _shardings_in_arguments(module: Module, call: Call) -> Iterator[Sharding]:
    """The shardings that the arguments of one call set.

    `TrainingArguments(deepspeed="ds.json", fsdp="full_shard")`,
    `deepspeed.initialize(config="ds.json")`.
    """
    fsdp = module.flow.value(call.keywords.get("fsdp"))
    if isinstance(fsdp, str) and "shard" in fsdp and "arguments" in module.flow.types(call.node):
        yield Sharding("FSDP", f'fsdp="{fsdp}"', certain=True)
    for name in ("deepspeed", "config", "hf_ds_config", "config_params"):
        value = module.flow.value(call.keywords.get(name))
        if isinstance(value, str) and value.endswith(CONFIGS):
            for folder in list(Path(module.path).absolute().parents)[:3]:
                setup = _sharding_config(folder / value)
                if setup is not None and setup.how:
                    yield Sharding(setup.how, value, certain=True)


def _sharding_of_command(command: str, script: Path) -> Iterator[Sharding]:
    """What a command says itself, or a configuration that it names."""
    words = command.replace("=", " ").split()
    config = _first_readable_config_in_command(words, script)
    if config is not None:
        yield Sharding(config.how, command, certain=True)
        return
    named = _fsdp_or_zero3_named_in_text(
        next((word for word in words if word.endswith(CONFIGS)), "")
    )
    if "--use_fsdp" in words or "--fsdp" in words:
        yield Sharding("FSDP", command, certain=True)
    elif named:
        yield Sharding(named, command, certain=False)
    elif "--zero_stage" in words:
        is_third = words[words.index("--zero_stage") + 1 :][:1] == ["3"]
        yield Sharding("ZeRO-3" if is_third else "", command, certain=True)


def _first_readable_config_in_command(words: Sequence[str], script: Path) -> ShardingConfig | None:
    """The first configuration among a command's words that can be read, from the script's folder or
    two above it.

    Commands are run from a project's root, which is seldom further up than that.
    """
    folders = list(script.absolute().parents)[:3]
    for word in words:
        if not word.endswith(CONFIGS):
            continue
        for folder in folders:
            config = _sharding_config(folder / word)
            if config is not None:
                return config
    return None


def _fsdp_or_zero3_named_in_text(text: str) -> str:
    """What a text names: `configs/fsdp_8gpu.yaml`, `zero3.json`; empty where it names neither."""
    match = NAMED.search(text)
    return "" if match is None else "FSDP" if match["fsdp"] else "ZeRO-3"


def _sharding_told_by_script_alone(module: Module) -> Sharding | None:
    """What the script says of itself, where neither a command nor a file beside it says anything."""
    script = Path(module.path)
    started = (
        sharding
        for command in commands_that_launch(script)
        for sharding in _sharding_of_command(command, script)
    )
    if any(True for _ in started) or any(setup for _, setup in _configs_beside(script)):
        return None
    return _sharding_told_in_docstring(module)


def _sharding_told_in_docstring(module: Module) -> Sharding | None:
    """What the script says of itself at its head, where no file says anything: "Full fine-tune with
    FSDP".
    """
    head = ast.get_docstring(module.tree) or ""
    for sentence in re.split(r"\n|\. ", head):
        if _fsdp_or_zero3_named_in_text(sentence) and not DENIED.search(sentence):
            return Sharding(
                _fsdp_or_zero3_named_in_text(sentence), f'"{sentence.strip()}"', certain=False
            )
    return None


def _configs_beside(script: Path) -> Iterator[tuple[Path, ShardingConfig | None]]:
    """The configurations in the script's folder and in folders for them directly below."""
    folder = script.absolute().parent
    below = [
        folder / name
        for name in sorted(_file_names_in_folder(folder))
        if name.lower() in CONFIG_FOLDERS
    ]
    count = 0
    for place in (folder, *below):
        for name in sorted(_file_names_in_folder(place)):
            if name.endswith(CONFIGS) and count < MAX_CONFIGS:
                count += 1
                yield place / name, _sharding_config(place / name)


def _file_names_in_folder(folder: Path) -> list[str]:
    """The names in a folder; none where it can't be read."""
    try:
        return [entry.name for entry in os.scandir(folder)]
    except OSError:
        return []


def _sharding_config(path: Path) -> ShardingConfig | None:
    """What a file says; None where it is no configuration of accelerate or DeepSpeed."""
    try:
        stat = path.stat()
    except OSError:
        return None
    if stat.st_size > MAX_CONFIG_BYTES:
        return None
    return _read_sharding_config_cached(str(path), stat.st_mtime_ns)


@lru_cache(maxsize=256)
def _read_sharding_config_cached(path: str, _changed: int) -> ShardingConfig | None:
    """What a file says of sharding, kept because every script of a folder asks for the same files;
    None where it is no configuration.
    """
    try:
        value = located_document.read_located_document(Path(path)).value
    except (TruetuneError, OSError, ValueError):
        return None
    if not isinstance(value, dict):
        return None
    if "zero_optimization" in value:
        return ShardingConfig(True, "ZeRO-3" if _zero_stage_of_deepspeed(value) == 3 else "")
    kind = value.get("distributed_type")
    if kind == "FSDP":
        return ShardingConfig(False, "FSDP")
    if kind == "DEEPSPEED":
        return ShardingConfig(
            True, "ZeRO-3" if _zero_stage_of_accelerate(Path(path), value) == 3 else ""
        )
    return ShardingConfig(False, "") if kind in ("MULTI_GPU", "NO") else None


def _zero_stage_of_deepspeed(value: Any) -> Any:
    """The stage that a DeepSpeed configuration sets."""
    zero = value.get("zero_optimization") if isinstance(value, dict) else None
    return zero.get("stage") if isinstance(zero, dict) else None


def _zero_stage_of_accelerate(path: Path, value: dict[str, Any]) -> Any:
    """The stage that an accelerate configuration sets, itself or by the DeepSpeed file that it
    names.
    """
    own = value.get("deepspeed_config")
    if not isinstance(own, dict):
        return None
    named = own.get("deepspeed_config_file")
    if not isinstance(named, str):
        return own.get("zero_stage")
    for folder in list(path.parents)[:3]:
        if (folder / named).is_file():
            try:
                return _zero_stage_of_deepspeed(
                    located_document.read_located_document(folder / named).value
                )
            except (TruetuneError, OSError, ValueError):
                return None
    return None
