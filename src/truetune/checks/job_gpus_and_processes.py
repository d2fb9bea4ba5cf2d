"""Reads which GPUs a job asks for or makes visible, and how many processes its commands start on
each node.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from truetune.checks.read_settings_in_launch_files import SETTINGS_OPTIONS, TRL_METHODS
from truetune.checks.vllm_server_commands import find_vllm_server_commands
from truetune.errors import TruetuneError
from truetune.parsing.input_limits import InputLimitError
from truetune.parsing.parse_python_within_limits import parse_python
from truetune.parsing.shell_commands import (
    CommandFile,
    ShellCommand,
    docker_run_words,
    last_option,
    options_before_script,
    parse_command_file,
    parse_digits,
    variables_set_once_unconditionally,
)
from truetune.settings import located_document

GENERIC = re.compile(r"gpu(?::[\w.-]*[A-Za-z][\w.-]*)?:(\d+)(?:\(.*\))?")
"""`gpu:4`, `gpu:a100:4`"""
TYPED = re.compile(r"(?:[\w.-]*[A-Za-z][\w.-]*:)?(\d+)")
"""`4`, `a100:4`"""
EXPORTED = re.compile(r"\s*(?:export\s+)?CUDA_VISIBLE_DEVICES=(\S+)\s*(?:#.*)?$")
VISIBLE = "CUDA_VISIBLE_DEVICES="
NAMED_DEVICES = re.compile(r"[\"']*device=(\d{1,2}(?:,\d{1,2}){0,15})[\"']*")
"""`--gpus '"device=0,1"'`"""
DEVICES = re.compile(r"\d+(?:,\d+)*")
CONTAINER_DEVICES = re.compile(r"[\"']*device=([\w,.:-]+)[\"']*")
TORCHRUN = (("torchrun",), ("-m", "torch.distributed.run"), ("-m", "torch.distributed.launch"))
SPREADS = ("device_map", "tensor_parallel", "vllm", "tp_plan", "pipeline_parallel", "DataParallel")
"""In a script: one process may use several GPUs"""
SOURCES = ("source", ".")
"""Commands by which a script runs another file's lines as its own"""
SETS_VISIBLE = re.compile(r"\bCUDA_VISIBLE_DEVICES=|\bunset\s+CUDA_VISIBLE_DEVICES")
PRINTS = re.compile(r"\s*(?:#|echo\b|printf\b)")
"""A line that only says something: `echo "cards: $CUDA_VISIBLE_DEVICES"` gives no command GPUs of its own"""
WATCHES = re.compile(
    r"\s*\(?\s*(?:nohup\s+)?(?:srun\s+(?:-\S+\s+)*)?(?:nvidia-smi|gpustat|watch|tail|top|htop|sar|vmstat|iostat|dstat|free|tensorboard)\b"
)
"""What runs beside a training and takes no GPU"""
SWIFT_TRAINS = ("sft", "pt", "rlhf")
TRL_SETTINGS_OF_LAUNCH = frozenset(("num_processes", "num_machines", "accelerate_config"))
# Chosen, not measured: settings of a script stand in its first lines; data files may be named .py by mistake.
HEAD = 1 << 20


CPU_SETTINGS = ("use_cpu", "no_cuda")
"""Settings of transformers' TrainingArguments and of accelerate's configuration that leave the GPUs alone"""
HIDES_ALL_GPUS = ("", "-1")
"""What CUDA_VISIBLE_DEVICES is set to where a program may see no GPU"""
# The empty text is a switch that stands alone; the next word may be another option, which is no value.
SWITCHED_ON = frozenset(("", "1", "true", "yes"))
INNER_SHELLS = frozenset(("bash", "sh", "zsh"))
SETTINGS_SUFFIXES = (".yaml", ".yml", ".json")
PROGRAM_STARTERS = frozenset(
    ("python", "python3", "accelerate", "torchrun", "deepspeed", "srun", "uv", "trl", "axolotl")
    + ("llamafactory-cli", "swift", "tune")
)
"""Commands that start a program which may use a GPU"""
STARTS_UNSEEN = frozenset(
    ("bash", "sh", "make", "docker", "podman", "apptainer", "singularity", "enroot")
)
"""Commands whose program stands in another file, or behind their own options"""


class GpuCount(NamedTuple):
    """GPUs of each node."""

    gpus: int
    line: int
    text: str


class ProcessLaunch(NamedTuple):
    """A command that starts processes."""

    command: ShellCommand
    processes: int
    """On each node"""
    machines: int
    """Nodes that `setting` counts over"""
    setting: str
    said: str
    """Where their number is said"""
    spreads_one_model: bool
    tasks: int = 1
    """How often srun starts the command on each node"""
    shares_one_model: str = ""
    """What one process does with several GPUs, where it leaves none idle"""


def gpus_requested_by_job(file: CommandFile) -> GpuCount | None:
    """The GPUs that a job asks for on each node; None where the file is no job, or the number is not plain."""
    nodes = parse_digits(_first_job_request_value_and_line(file, "--nodes", "-N")[0] or "1")
    for name, pattern in (
        ("--gres", GENERIC),
        ("--gpus-per-node", TYPED),
        ("--gpus", TYPED),
        ("-G", TYPED),
    ):
        if name not in file.requests:
            continue
        value, line = file.requests[name]
        match = pattern.fullmatch(value)
        count = int(match[1]) if match else 0
        if name in ("--gpus", "-G"):
            # --gpus counts those of the whole job; shared out unevenly, no node has a known number.
            count = count // nodes if nodes and count % nodes == 0 else 0
        return GpuCount(count, line, f"{name}={value}") if count else None
    return None


def _first_job_request_value_and_line(file: CommandFile, *names: str) -> tuple[str, int]:
    """(value, line) of the first of these requests that a job makes; ("", 0) if it makes none."""
    return next((file.requests[name] for name in names if name in file.requests), ("", 0))


def visible_gpus_of_command(file: CommandFile, command: ShellCommand) -> GpuCount | None:
    """The GPUs that CUDA_VISIBLE_DEVICES leaves a command: set for it alone, or once before it in the file.

    None where it is not set, set to something else than numbers, or set more than once.
    """
    own = command.variables.get("CUDA_VISIBLE_DEVICES")
    if own is not None:
        return _parse_visible_gpus(own, command.line)
    in_container = _gpus_of_container(command, Path(file.path).parent)
    if in_container is not None:
        return in_container
    matches = (
        (number, EXPORTED.match(line)) for number, line in enumerate(file.text.splitlines(), 1)
    )
    settings = [(number, match[1]) for number, match in matches if match is not None]
    if not settings:
        return _visible_gpus_of_sourced_env_file(file, command)
    # A line below the command sets what later commands see.
    if len(settings) != 1 or settings[0][0] > command.line:
        return None
    return _parse_visible_gpus(settings[0][1], settings[0][0])


def _visible_gpus_of_sourced_env_file(file: CommandFile, command: ShellCommand) -> GpuCount | None:
    """The GPUs that a file of variables leaves, which the script reads before the command: `source gpu.env`."""
    folder = Path(file.path).parent
    gpu_counts = [
        gpus
        for one in file.commands
        if one.words[0] in SOURCES and len(one.words) > 1 and one.line < command.line
        for gpus in _visible_gpus_of_env_file(folder / one.words[1], one.line)
    ]
    return gpu_counts[0] if len(gpu_counts) == 1 else None


def gpus_given_to_container(command: ShellCommand) -> int | None:
    """The GPUs that a container is given; None where it is all, or their number is not plain."""
    given = last_option(command.words, "--gpus") or ""
    match = CONTAINER_DEVICES.fullmatch(given)
    if match is not None:
        return len(match[1].split(","))
    if given.isdecimal():
        return int(given)
    visible = re.search(r"\bNVIDIA_VISIBLE_DEVICES=([\d,]+)", command.text)
    return len(visible[1].strip(",").split(",")) if visible is not None else None


def _gpus_of_container(command: ShellCommand, folder: Path) -> GpuCount | None:
    """The GPUs that `docker run`, or a service of a compose file, shows its command; None where that is not plain."""
    words = docker_run_words(command)
    gpu_counts: list[GpuCount] = []
    for number, word in enumerate(words[:-1]):
        name, _, given = word.partition("=") if word.startswith("--") else (word, "", "")
        value = given or words[number + 1]
        if name in ("-e", "--env") and value.startswith(VISIBLE):
            line = command.line_of(value)
            gpu_counts += filter(None, [_parse_visible_gpus(value.removeprefix(VISIBLE), line)])
        elif name == "--env-file":
            gpu_counts += _visible_gpus_of_env_file(folder / value, command.line)
        elif name == "--gpus" and (devices := NAMED_DEVICES.fullmatch(value)) is not None:
            gpu_counts.append(
                GpuCount(len(set(devices[1].split(","))), command.line, f"--gpus {value}")
            )
    # A variable that is set twice, and devices beside it, say different things.
    return gpu_counts[0] if len(gpu_counts) == 1 else None


def _visible_gpus_of_env_file(path: Path, line: int) -> Iterator[GpuCount]:
    """The GPUs that a container's file of variables leaves visible, if it names
    CUDA_VISIBLE_DEVICES.
    """
    for setting in lines_of_env_file(path):
        if setting.startswith(VISIBLE):
            visible = _parse_visible_gpus(setting.removeprefix(VISIBLE), line)
            if visible is not None:
                yield visible._replace(text=f"{visible.text} of {path.name}")


def visible_gpus_set_in_script(
    file: CommandFile, command: ShellCommand
) -> tuple[GpuCount, str] | None:
    """The GPUs that a script leaves itself, `os.environ["CUDA_VISIBLE_DEVICES"] = "0"`, and its path.

    None where it sets the variable under a condition, more than once, or to what is not plain.
    """
    name = next((word for word in command.words if word.endswith(".py")), None)
    script = Path(file.path).parent / name if name is not None else None
    text = _file_head(script) if script is not None else ""
    # Twice: one of them may be a default that the other replaces.
    if script is None or text.count("CUDA_VISIBLE_DEVICES") != 1:
        return None
    value = next(_cuda_visible_devices_in_script(text), None)
    visible = _parse_visible_gpus(*value) if value is not None else None
    return (visible, str(script)) if visible is not None else None


def _cuda_visible_devices_in_script(text: str) -> Iterator[tuple[str, int]]:
    """(value, line) of each plain setting of CUDA_VISIBLE_DEVICES at the top of a script."""
    try:
        statements = parse_python(text).body
    except (InputLimitError, SyntaxError, ValueError):
        return
    for node in statements:
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Constant):
            continue
        target, value = node.targets[0], node.value.value
        is_variable = isinstance(target, ast.Subscript) and "CUDA_VISIBLE_DEVICES" in ast.unparse(
            target
        )
        if is_variable and isinstance(value, str):
            yield value, node.lineno


def _parse_visible_gpus(value: str, line: int) -> GpuCount | None:
    """The GPUs that a value of CUDA_VISIBLE_DEVICES leaves; None where it is not plain numbers."""
    value = value.strip("\"'")
    if DEVICES.fullmatch(value) is None:
        return None
    return GpuCount(len(set(value.split(","))), line, f"CUDA_VISIBLE_DEVICES={value}")


def may_commands_split_gpus(file: CommandFile) -> bool:
    """Could the commands of a file use different GPUs: several that each take some, or a server
    that takes those a training leaves?
    """
    own = any("CUDA_VISIBLE_DEVICES" in command.variables for command in file.commands)
    lines = [line for line in file.text.splitlines() if not PRINTS.match(line)]
    texts = (
        "--gpu_ids",
        "--include",
        "vllm-serve",
        "sglang",
        "#SBATCH --array",
    )
    # A single `&` at the end of a line, and not `&&`: the next command then runs at the same time.
    in_background = any(
        re.search(r"(?<!&)&\s*(?:#.*)?$", line) and not WATCHES.match(line) for line in lines
    )
    return (
        own
        or in_background
        or any(SETS_VISIBLE.search(line) for line in lines)
        or any(text in file.text for text in texts)
        or any(find_vllm_server_commands(file))
    )


def find_launches(file: CommandFile) -> Iterator[ProcessLaunch]:
    """The launches whose number of processes is plain."""
    folder = Path(file.path).parent
    for command in file.commands:
        tasks = srun_tasks_per_node(command, file)
        # Where each of several tasks starts an inner launcher, launcher-started-by-each-task says so.
        inner = _commands_of_inner_shell(command) if tasks == 1 else ()
        for started in (command, *inner):
            launch = _launch_by_any_launcher(started, file)
            if launch is None or tasks is None:
                continue
            yield launch._replace(
                command=command,
                processes=launch.processes * tasks,
                spreads_one_model=launch.spreads_one_model
                or _do_scripts_spread_model(started, folder),
                tasks=tasks,
            )


def _launch_by_any_launcher(command: ShellCommand, file: CommandFile) -> ProcessLaunch | None:
    """The processes that a command's launcher starts; None where it has none, or their number is not plain."""
    folder = Path(file.path).parent
    return (
        _torchrun_launch(command)
        or _deepspeed_launch(command)
        or _accelerate_launch(command, folder)
        or _trl_launch(command, folder)
        or _torchtune_launch(command)
        or _swift_launch(command, file)
    )


def _commands_of_inner_shell(command: ShellCommand) -> Iterator[ShellCommand]:
    """The commands that a shell is given as one word, on each node as a rule: `srun bash -c 'torchrun train.py'`."""
    for shell, switch, text in zip(
        command.words, command.words[1:], command.words[2:], strict=False
    ):
        if shell.rpartition("/")[2] in INNER_SHELLS and switch in ("-c", "-lc"):
            yield from parse_command_file(text, "command.sh").commands


def srun_tasks_per_node(command: ShellCommand, file: CommandFile) -> int | None:
    """How many tasks srun starts of a command on each node; None if that is not plain."""
    if command.words[0] != "srun":
        return 1
    own = last_option(command.words, "--ntasks-per-node")
    # A total of tasks may be shared out among the nodes in any way.
    if own is None and last_option(command.words, "--ntasks", "-n") is not None:
        return None
    tasks = own or _first_job_request_value_and_line(file, "--ntasks-per-node")[0]
    if tasks:
        return parse_digits(tasks)
    # Slurm then counts tasks by GPUs, whose number per node is not said.
    if "--gpus-per-task" in file.requests:
        return None
    has_tasks = bool({"--ntasks", "-n"} & file.requests.keys())
    return _even_tasks_per_node_of_job(file) if has_tasks else 1


def _even_tasks_per_node_of_job(file: CommandFile) -> int | None:
    """The tasks of a job, shared out evenly among its nodes; None where they are not, or a number is not plain."""
    tasks = parse_digits(_first_job_request_value_and_line(file, "--ntasks", "-n")[0])
    nodes = parse_digits(_first_job_request_value_and_line(file, "--nodes", "-N")[0] or "1")
    return tasks // nodes if tasks and nodes and tasks % nodes == 0 else None


def _torchrun_launch(command: ShellCommand) -> ProcessLaunch | None:
    """The processes that torchrun starts on each node; one if no number is given."""
    behind = (command.words_following(*words) for words in TORCHRUN)
    options = next((words for words in behind if words is not None), None)
    if options is None:
        return None
    count_option = last_option(options_before_script(options), "--nproc-per-node")
    count = parse_digits(count_option) if count_option is not None else 1
    text = (
        f"--nproc-per-node {count_option}"
        if count_option is not None
        else "torchrun: 1 process by default"
    )
    return ProcessLaunch(command, count, 1, "--nproc-per-node", text, False) if count else None


def _deepspeed_launch(command: ShellCommand) -> ProcessLaunch | None:
    """The processes that DeepSpeed's launcher starts, if `--num_gpus` or `--include` says how many."""
    options = command.words_following("deepspeed")
    if options is None:
        return None
    options = options_before_script(options)
    included = last_option(options, "--include")
    if included is not None:
        host, _, devices = included.partition(":")
        if not host or DEVICES.fullmatch(devices) is None:
            return None
        text = f"--include {included}"
        return ProcessLaunch(command, len(devices.split(",")), 1, "--include", text, False)
    count = parse_digits(last_option(options, "--num-gpus"))
    return (
        ProcessLaunch(command, count, 1, "--num_gpus", f"--num_gpus {count}", False)
        if count
        else None
    )


def commands_if_all_kept_on_cpu(file: CommandFile) -> list[tuple[ShellCommand, str]]:
    """The programs of a file, each with the setting that keeps it on the CPU; empty if any of them
    may use a GPU.
    """
    kept: list[tuple[ShellCommand, str]] = []
    for command in file.commands:
        first = command.words[0].rpartition("/")[2] if command.words else ""
        if first in STARTS_UNSEEN:
            return []
        if first in PROGRAM_STARTERS:
            reason = _setting_that_keeps_on_cpu(command, Path(file.path).parent)
            if reason is None:
                return []
            kept.append((command, reason))
    return kept


def _setting_that_keeps_on_cpu(command: ShellCommand, folder: Path) -> str | None:
    """What tells a command to train on the CPU: an option, or a line of the settings that it names."""
    options = command.words_following("accelerate", "launch")
    if options is not None and last_option(options_before_script(options), "--cpu") is not None:
        return "accelerate launch --cpu"
    visible = command.variables.get("CUDA_VISIBLE_DEVICES")
    if visible in HIDES_ALL_GPUS:
        return f'CUDA_VISIBLE_DEVICES="{visible}"'
    for name in CPU_SETTINGS:
        value = last_option(command.words, f"--{name}")
        if value is not None and value.lower() in SWITCHED_ON:
            return f"--{name} {value}".rstrip()
    for word in command.words:
        settings = _accelerate_config(folder / word) if word.endswith(SETTINGS_SUFFIXES) else None
        for name in CPU_SETTINGS:
            if settings is not None and settings.get(name) is True:
                return f"{name}: true in {word}"
    return None


def _accelerate_launch(command: ShellCommand, folder: Path) -> ProcessLaunch | None:
    """The processes that `accelerate launch` starts, by its options or by the file that
    `--config_file` names.
    """
    options = command.words_following("accelerate", "launch")
    if options is None:
        return None
    options = options_before_script(options)
    return _launch_by_accelerate_options(
        command, options, last_option(options, "--config-file"), folder
    )


def _trl_launch(command: ShellCommand, folder: Path) -> ProcessLaunch | None:
    """The processes that TRL's own command starts: it hands its options, and the file that
    `--accelerate_config` names, to `accelerate launch`.
    """
    options = command.words_following("trl")
    if not options or options[0] not in TRL_METHODS:
        return None
    settings_name = last_option(options, *SETTINGS_OPTIONS)
    settings = _accelerate_config(folder / settings_name) if settings_name else {}
    # TRL takes options of accelerate from its own settings too: the number is then theirs.
    if settings is None or TRL_SETTINGS_OF_LAUNCH & settings.keys():
        return None
    # One of the names that TRL ships (`zero2`) is no file here, and its number of processes not known.
    name = last_option(options, "--accelerate-config")
    launch = _launch_by_accelerate_options(command, options, name, folder)
    if launch is None or settings_name is None:
        return launch
    return launch._replace(spreads_one_model=_does_script_spread_model(folder / settings_name))


def _launch_by_accelerate_options(
    command: ShellCommand, options: tuple[str, ...], config_name: str | None, folder: Path
) -> ProcessLaunch | None:
    """The processes by the options of `accelerate launch`, and by the configuration of this name."""
    config = _accelerate_config(folder / config_name) if config_name else {}
    if config is None:
        return None
    option = last_option(options, "--num-processes")
    machines = last_option(options, "--num-machines")
    count: Any = parse_digits(option) if option is not None else config.get("num_processes")
    nodes: Any = parse_digits(machines) if machines is not None else config.get("num_machines", 1)
    if not _are_processes_split_evenly(count, nodes):
        return None
    if option is not None:
        setting, text = "--num_processes", f"--num_processes {option}"
    else:
        setting, text = (
            f"num_processes in {config_name}:",
            f"num_processes: {count} in {config_name}",
        )
    # accelerate counts the processes of all machines together, torchrun those of one.
    return ProcessLaunch(command, count // nodes, nodes, setting, text, False)


def _are_processes_split_evenly(processes: Any, nodes: Any) -> bool:
    """Are both counts known, and does each node get the same number of processes, at least one?"""
    if not isinstance(processes, int) or not isinstance(nodes, int):
        return False
    return processes != 0 and nodes != 0 and processes % nodes == 0


def _torchtune_launch(command: ShellCommand) -> ProcessLaunch | None:
    """torchtune's `tune run`: torchrun where it is given its options, else one process."""
    options = command.words_following("tune", "run")
    if options is None:
        return None
    recipe = next(
        (word for word in options if re.fullmatch(r"\w+_(?:single_device|distributed)", word)), ""
    )
    # tune's own options stand before the recipe; behind it they are the recipe's.
    count = last_option(options[: options.index(recipe)] if recipe else options, "--nproc-per-node")
    if not recipe or (count is not None and parse_digits(count) is None):
        return None
    text = f"--nproc_per_node {count}" if count is not None else f"tune run {recipe}"
    is_distributed = recipe.endswith("_distributed")
    setting = (
        "--nproc_per_node"
        if is_distributed
        else "a recipe that ends in _distributed, with --nproc_per_node"
    )
    return ProcessLaunch(command, parse_digits(count) or 1, 1, setting, text, False)


def _swift_launch(command: ShellCommand, file: CommandFile) -> ProcessLaunch | None:
    """ms-swift: as many processes as NPROC_PER_NODE says, else one, over which it spreads the model."""
    if not any(command.words_following("swift", what) is not None for what in SWIFT_TRAINS):
        return None
    count_text = command.variables.get("NPROC_PER_NODE") or variables_set_once_unconditionally(
        file.text
    ).get("NPROC_PER_NODE")
    count = parse_digits(count_text) if count_text is not None else 1
    if count is None or re.search(r"\bNNODES=|\bNODE_RANK=", file.text):
        return None
    text = (
        f"NPROC_PER_NODE={count_text}"
        if count_text is not None
        else "swift: NPROC_PER_NODE is not set"
    )
    shares = "the layers of the model are spread over the GPUs, which then work one after another"
    if last_option(command.words, "--deepspeed"):
        shares = "ms-swift spreads the layers over them, and stops at --deepspeed, which takes one GPU a process"
    return ProcessLaunch(command, count, 1, "NPROC_PER_NODE", text, False, shares_one_model=shares)


def _accelerate_config(path: Path) -> dict[str, Any] | None:
    """accelerate's configuration; None where it is not there or can't be read."""
    try:
        value = located_document.read_located_document(path).value if path.is_file() else None
    except TruetuneError:
        return None
    return value if isinstance(value, dict) else None


def _do_scripts_spread_model(command: ShellCommand, folder: Path) -> bool:
    """Does a script that a command names spread one model over several GPUs?"""
    scripts = (folder / word for word in command.words if word.endswith(".py"))
    return any(map(_does_script_spread_model, scripts))


def _does_script_spread_model(script: Path) -> bool:
    """Does a script, by its words, spread one model over several GPUs?"""
    text = _file_head(script)
    return any(name in text for name in SPREADS)


def lines_of_env_file(path: Path) -> Iterator[str]:
    """The lines of a file of variables (`NAME=value`), without `export`; none if it is not there."""
    for line in _file_head(path).splitlines():
        yield line.strip().removeprefix("export ").lstrip()


def _file_head(path: Path) -> str:
    """The beginning of a file; empty where it is not there."""
    try:
        with path.open("rb") as file:
            return file.read(HEAD).decode("utf-8", "replace")
    except OSError:
        return ""
