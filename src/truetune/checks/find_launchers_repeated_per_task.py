"""Finds launchers of processes (torchrun, accelerate, DeepSpeed) that Slurm or MPI starts several
times on a node, once for each task.

torchrun, `accelerate launch` and DeepSpeed start the processes of a node themselves, so that each node needs one of
them. The command may stand in `bash -c '...'`, over several lines, in a variable, or in a script beside the job.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from truetune.checks.job_gpus_and_processes import gpus_requested_by_job
from truetune.checks.node_rendezvous import (
    NODES_OF_SLURM,
    TORCHRUN,
    node_count_of_job,
    started_commands,
)
from truetune.checks.read_settings_in_launch_files import find_in_folder_or_parents
from truetune.errors import DataError
from truetune.parsing.shell_commands import (
    CommandFile,
    ShellCommand,
    last_option,
    options_before_script,
    parse_command_file,
    parse_digits,
    read_command_file,
    variables_set_once_unconditionally,
)

SRUN, MPI = "srun", frozenset(("mpirun", "mpiexec", "prun", "orterun"))
STARTED_PROGRAMS = frozenset(
    (
        *("bash", "sh", "zsh", "env", "singularity", "apptainer"),
        *("torchrun", "accelerate", "deepspeed", "python", "python3"),
    )
)
"""Where the options of srun or MPI end"""
OPEN_QUOTE = re.compile(r"^\s*(?:srun|mpirun|mpiexec|prun)\b[^'\"]*\s-l?c\s+(['\"])")
"""`srun bash -c '` whose quote may close on a later line"""
GUARDED = re.compile(r"SLURM_LOCALID|LOCAL_RANK|--gpus-per-task|--gpu-bind")
"""A task that knows its place on the node: one of them launches, or each has GPUs of its own"""
COMPARES_TASK = re.compile(r"\[[^\]\n]{0,80}(?:SLURM_PROCID|PMI_RANK|PMIX_RANK)")
"""`[ $SLURM_PROCID -eq 0 ] && torchrun`: one task launches"""
COUNTS_TASKS = re.compile(
    r"SLURM_(?:NTASKS|NPROCS|PROCID)|(?:PMI|PMIX|OMPI_COMM_WORLD)_(?:RANK|SIZE)"
)
"""Launchers that are told their place by the task, not by the node"""
OF_ALL_GPUS = re.compile(r"gpu|auto|\$\{?SLURM_GPUS(?:_ON_NODE|_PER_NODE)\}?")
PER_NODE_OF_MPI = ("-npernode", "--npernode", "-ppn", "-perhost", "-N")
PER_RESOURCE = re.compile(r"ppr:(\d+):node")
GLUED = re.compile(r"(-n|-N|-c)(\d+)")
"""`-n4`"""
# Chosen, not measured: a command of more lines in one pair of quotes is a slip.
MAX_QUOTED_LINES = 200


class TaskLaunch(NamedTuple):
    """A launcher that is started more than once on a node."""

    command: ShellCommand
    launcher: str
    starter: str
    tasks: str
    """`4 times on each node`, `8 times on 2 nodes`"""
    setting: str
    """What says so: `--ntasks-per-node=4`"""
    line: int
    processes: str
    """What each launcher starts, as far as it is said: `4 processes`"""
    nodes: int | None
    port: str


class _Tasks(NamedTuple):
    """How often a command runs on a node, and the setting that says so."""

    text: str
    setting: str
    line: int


class _Launcher(NamedTuple):
    """A launcher as a command calls it."""

    name: str
    nodes: str | None
    """As the command gives them"""
    processes: str
    """On the node, or of all nodes (accelerate); empty where it is not said"""
    is_total: bool
    port: str


def find_launchers_repeated_on_one_node(file: CommandFile) -> Iterator[TaskLaunch]:
    """The launchers of a file that surely run several times on one node, of which one is enough."""
    text = _join_quoted_lines(file.text)
    whole = file if text == file.text else parse_command_file(text, file.path)
    assigned = variables_set_once_unconditionally(text)
    for command in whole.commands:
        starter = command.words[0].rpartition("/")[2]
        if starter != SRUN and starter not in MPI:
            continue
        for words, said in _commands_of_each_task(whole, command, assigned):
            launcher = _read_launcher(ShellCommand(words, command.line, command.text))
            if launcher is None or _may_be_meant_per_task(launcher, said, whole):
                continue
            tasks = _tasks_if_several_on_node(starter, command, whole, launcher)
            if tasks is not None:
                yield TaskLaunch(
                    command,
                    launcher.name,
                    starter,
                    tasks.text,
                    tasks.setting,
                    tasks.line,
                    _describe_processes(launcher),
                    node_count_of_job(whole),
                    launcher.port,
                )
                break


def does_hold_launcher_directly(command: ShellCommand) -> bool:
    """Does a command hold its launcher as words of its own, not in quotes or in another file?"""
    return any(
        command.words_following(*words) is not None
        for words in (*TORCHRUN, ("accelerate", "launch"), ("deepspeed",))
    )


def _join_quoted_lines(text: str) -> str:
    """The text of a script with each quoted command joined on its first line; the line numbers
    stay.
    """
    lines = text.splitlines()
    joined: list[str] = []
    place = 0
    while place < len(lines):
        match = OPEN_QUOTE.match(lines[place])
        end = _closing_quote_line(lines, place, match[1]) if match is not None else place
        parts = [
            line.strip() for line in lines[place : end + 1] if not line.lstrip().startswith("#")
        ]
        joined.append(_join_quoted_script_lines(parts) if end > place else lines[place])
        joined += [""] * (end - place)
        place = end + 1
    return "\n".join(joined)


def _join_quoted_script_lines(parts: list[str]) -> str:
    """Lines of a quoted script as one: a backslash continues, any other line ends its command."""
    whole = parts[0]
    for part in parts[1:]:
        if whole.endswith("\\"):
            whole = whole[:-1] + " " + part
        elif whole.endswith(("'", '"', ";", "&&")):
            whole += " " + part
        else:
            whole += "; " + part
    return whole


def _closing_quote_line(lines: list[str], begin: int, quote: str) -> int:
    """The line on which a quote that is open at `begin` closes; `begin` itself where it closes there, or never."""
    count = 0
    for place in range(begin, min(len(lines), begin + MAX_QUOTED_LINES)):
        count += lines[place].replace(f"\\{quote}", "").count(quote)
        if count % 2 == 0:
            return place
    return begin


def _commands_of_each_task(
    file: CommandFile, command: ShellCommand, assigned: dict[str, str]
) -> Iterator[tuple[tuple[str, ...], str]]:
    """The commands that one of srun or MPI runs in each task, and the text that they stand in."""
    inner_text = next((word for word in command.words if " " in word), "")
    for one in started_commands(file, command, assigned):
        yield one.words, command.text + inner_text
    script = script_run_by_tasks(command, file)
    if script is not None:
        for inner in script.commands:
            yield inner.words, script.text


def script_run_by_tasks(command: ShellCommand, file: CommandFile) -> CommandFile | None:
    """The script beside the job that each task runs (`srun bash run.sh`, `srun ./run.sh`); None where it is none."""
    name = next((word for word in command.words[1:] if word.endswith((".sh", ".bash"))), None)
    path = find_in_folder_or_parents(Path(file.path).parent, name)
    if name is None or path is None or does_hold_launcher_directly(command):
        return None
    try:
        return read_command_file(path)
    except DataError:
        return None


def _read_launcher(command: ShellCommand) -> _Launcher | None:
    """The launcher of a command, by its options; None where it calls none, or only prints one."""
    if command.words[0] in ("echo", "printf"):
        return None
    for words in TORCHRUN:
        options = command.words_following(*words)
        if options is not None:
            return _torchrun_launcher(options_before_script(options))
    options = command.words_following("accelerate", "launch")
    if options is not None:
        own = options_before_script(options)
        return _Launcher(
            "accelerate launch",
            last_option(own, "--num-machines"),
            last_option(own, "--num-processes") or "",
            True,
            last_option(own, "--main-process-port") or "",
        )
    options = command.words_following("deepspeed")
    if options is None:
        return None
    own = options_before_script(options)
    processes = last_option(own, "--num-gpus") or "gpu"
    port = last_option(own, "--master-port") or ""
    return _Launcher("deepspeed", last_option(own, "--num-nodes"), processes, False, port)


def _torchrun_launcher(own: tuple[str, ...]) -> _Launcher:
    """The launcher that torchrun is, by its own options."""
    processes = last_option(own, "--nproc-per-node") or "1"
    if "--standalone" in own:
        return _Launcher("torchrun", "1", processes, False, "")
    return _Launcher(
        "torchrun", last_option(own, "--nnodes"), processes, False, _port_of_torchrun(own)
    )


def _port_of_torchrun(own: tuple[str, ...]) -> str:
    """The port that it is given, by itself or after the address."""
    endpoint = last_option(own, "--rdzv-endpoint") or ""
    return last_option(own, "--master-port") or endpoint.rpartition(":")[2]


def _may_be_meant_per_task(launcher: _Launcher, text: str, file: CommandFile) -> bool:
    """May a launcher be meant for each task: one with GPUs of its own, or a run of its own?"""
    if GUARDED.search(text) or COMPARES_TASK.search(text) or "--gpus-per-task" in file.requests:
        return True
    if _is_launcher_for_one_of_several_nodes(launcher, file):
        return False
    return COUNTS_TASKS.search(text) is not None or not _surely_starts_several_processes(
        launcher, file
    )


def _is_launcher_for_one_of_several_nodes(launcher: _Launcher, file: CommandFile) -> bool:
    """Is a launcher told to be one of as many launchers as there are nodes, and more than one?"""
    nodes = launcher.nodes or ""
    count = parse_digits(nodes)
    return NODES_OF_SLURM.fullmatch(nodes) is not None or (
        count is not None and count > 1 and count == node_count_of_job(file)
    )


def _surely_starts_several_processes(launcher: _Launcher, file: CommandFile) -> bool:
    """Does a launcher surely start more than one process on its node?"""
    count = parse_digits(launcher.processes)
    if count is not None:
        nodes = parse_digits(launcher.nodes or "1") if launcher.is_total else 1
        return nodes is not None and count > nodes
    granted = gpus_requested_by_job(file)
    is_all = OF_ALL_GPUS.fullmatch(launcher.processes) is not None
    return is_all and granted is not None and granted.gpus > 1


def _describe_processes(launcher: _Launcher) -> str:
    """`4 processes`, where the number is plain or that of the GPUs."""
    count = parse_digits(launcher.processes)
    if count is None or launcher.is_total:
        return "all processes of its node"
    return f"{count} process{'es' * (count != 1)}"


def _tasks_if_several_on_node(
    starter: str, command: ShellCommand, file: CommandFile, launcher: _Launcher
) -> _Tasks | None:
    """The tasks in which a command runs on a node, if that is certain to be more than one; else None."""
    own = own_options_of_task_starter(command)
    if starter == SRUN:
        per_node = last_option(own, "--ntasks-per-node", "--tasks-per-node")
        total = last_option(own, "--ntasks", "-n")
        names = ("--ntasks-per-node", "--ntasks")
    else:
        by_resource = PER_RESOURCE.search(last_option(own, "--map-by") or "")
        per_node = by_resource[1] if by_resource else last_option(own, *PER_NODE_OF_MPI)
        total = last_option(own, "-np", "-n", "--np")
        names = ("-npernode", "-np")
    nodes = _nodes_of_command(own, file, launcher)
    if per_node is not None or total is not None:
        return _tasks_if_several_per_node(per_node, total, nodes, names, command.line)
    return _tasks_of_job(file, nodes)


def _tasks_of_job(file: CommandFile, nodes: int | None) -> _Tasks | None:
    """The tasks that the job asks for, which its commands take where they say nothing."""
    for name in ("--ntasks-per-node", "--tasks-per-node"):
        if name in file.requests:
            value, line = file.requests[name]
            return _tasks_if_several_per_node(value, None, nodes, (f"#SBATCH {name}", ""), line)
    for name in ("--ntasks", "-n"):
        if name in file.requests:
            value, line = file.requests[name]
            return _tasks_if_several_per_node(None, value, nodes, ("", f"#SBATCH {name}"), line)
    return None


def _tasks_if_several_per_node(
    per_node: str | None, total: str | None, nodes: int | None, names: tuple[str, str], line: int
) -> _Tasks | None:
    """The tasks as words, where a node has surely two or more."""
    count = parse_digits(per_node)
    if per_node is not None:
        if count is None or count < 2:
            return None
        return _Tasks(f"{count} times on each node", f"{names[0]}={per_node}", line)
    every = parse_digits(total)
    if every is None or nodes is None or every <= nodes:
        return None
    where = "each node" if nodes == 1 else f"{nodes} nodes"
    text = f"{every} times on {where}" if nodes > 1 else f"{every} times on one node"
    return _Tasks(text, f"{names[1]}={total}", line)


def _nodes_of_command(own: tuple[str, ...], file: CommandFile, launcher: _Launcher) -> int | None:
    """The nodes that the command runs on: by its own option, by the job, or as many as the launcher counts."""
    nodes_option = last_option(own, "--nodes", "-N") if own[0] == SRUN else None
    hosts = last_option(own, "-H", "--host", "-host", "--hosts")
    if nodes_option is not None:
        return parse_digits(nodes_option)
    if hosts:
        return len({one.partition(":")[0] for one in hosts.split(",")})
    if {"--nodes", "-N"} & file.requests.keys():
        return node_count_of_job(file)
    return parse_digits(launcher.nodes or "1")


def own_options_of_task_starter(command: ShellCommand) -> tuple[str, ...]:
    """The options of srun or of MPI itself, before the program that it starts."""
    own: list[str] = []
    for word in command.words:
        if (
            " " in word
            or word.rpartition("/")[2] in STARTED_PROGRAMS
            or word.endswith((".sh", ".bash"))
        ):
            break
        glued = GLUED.fullmatch(word)
        own += [glued[1], glued[2]] if glued else [word]
    return tuple(own)
