"""Finds trainings that one command starts several times, and that never join one process group.

srun and mpirun number their tasks by variables of their own (SLURM_PROCID, OMPI_COMM_WORLD_RANK). torch, accelerate and
the trainers on top of them read RANK, LOCAL_RANK and WORLD_SIZE, which torchrun and `accelerate launch` set. A script
that is started as plain `python` in each task finds none of them, and takes itself for the only process.

The trade-off: a script that is not beside the job, and one that names any variable of Slurm or MPI, is not judged.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from truetune.checks.find_launchers_repeated_per_task import (
    MPI,
    SRUN,
    own_options_of_task_starter,
    script_run_by_tasks,
)
from truetune.checks.node_rendezvous import NODES_OF_SLURM, node_count_of_job
from truetune.checks.read_settings_in_launch_files import find_in_folder_or_parents
from truetune.checks.shell_loops import ShellLoop, find_loops, without_leading_shell_keywords
from truetune.checks.source.evidence.which_place_surely_runs_first import trains_anything
from truetune.data.script_rows.read_rows_given_to_trainer import read_module_with_helpers
from truetune.errors import TruetuneError
from truetune.parsing.shell_commands import (
    CommandFile,
    ShellCommand,
    last_option,
    parse_command_file,
    parse_digits,
)
from truetune.source.parsed_source_file import Module

PYTHON = re.compile(r"python[\d.]*")
SETS_RANKS = re.compile(r"\b(?:RANK|LOCAL_RANK|WORLD_SIZE)=")
"""A job that gives each process its number itself"""
NUMBERS_TASKS = re.compile(
    r"SLURM_(?!JOB_?ID|JOB_NODELIST|SUBMIT|TMPDIR)|PMI_|PMIX_|OMPI_|MV2_|FLUX_|PALS_"
)
"""Variables by which tasks are told apart"""
JOINS_BY_ITSELF = re.compile(
    NUMBERS_TASKS.pattern
    + r"|mpi4py|submitit|idr_torch|hostlist|lightning|horovod|deepspeed|composer|\bjax\b|\bray\b|torchelastic"
    r"|\bimport hydra\b|wandb\.agent|optuna"
    r"|environ(?:\[|\.setdefault\()\s*['\"](?:RANK|WORLD_SIZE|LOCAL_RANK)['\"]\]?\s*[=,]"
)
"""What finds the other processes without a launcher, sets a launcher's variables, or gives each run settings of its
own"""
NEEDS_RANKS = re.compile(r"environ\[\s*['\"](?:RANK|WORLD_SIZE|LOCAL_RANK)['\"]\s*\](?!\s*=(?!=))")
"""A script that ends in a KeyError without a launcher"""
READS_RANKS = re.compile(r"['\"](?:RANK|WORLD_SIZE|LOCAL_RANK)['\"]")
CONDITION = re.compile(r"WORLD_SIZE|RANK|world|rank|ddp|distributed|is_available|environ", re.I)
BY_ACCELERATE = re.compile(r"\baccelerate\b|\btransformers\b|\btrl\b|\bunsloth\b")
"""Of MPI, accelerate reads the variables itself"""
VISIBLE = "CUDA_VISIBLE_DEVICES"
ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
BACKGROUND = re.compile(r"(?<![&>])&(?!&|>|\d)")
NUMBERS = re.compile(r"\{(\d{1,3})\.\.(\d{1,3})\}|\$\(seq (\d{1,3}) (\d{1,3})\)")
MAX_STARTED = 200
"""Commands that are read of one quoted script. Chosen, not measured: it bounds the time"""


class LoneTrainings(NamedTuple):
    """A command that trains the same several times at once."""

    command: ShellCommand
    starter: str
    """`srun`, `mpirun` or `a loop`"""
    times: int
    setting: str
    """What says how many"""
    line: int
    script: str
    is_meant_for_several: bool
    """Does the script use a trainer or variables that work over several processes?"""


class _TaskCount(NamedTuple):
    """How many tasks run a command, and what says so."""

    tasks: int
    setting: str
    """As it is written: `--ntasks=4`"""
    line: int


def find_lone_trainings(file: CommandFile) -> Iterator[LoneTrainings]:
    """The commands of a file that surely start one training several times, none of which knows of the others."""
    if SETS_RANKS.search(file.text):
        return
    for command in file.commands:
        starter = command.words[0].rpartition("/")[2]
        if starter == SRUN or starter in MPI:
            yield from _lone_trainings_of_tasks(file, command, starter)
    yield from _lone_trainings_of_loops(file)


def _lone_trainings_of_tasks(
    file: CommandFile, command: ShellCommand, starter: str
) -> Iterator[LoneTrainings]:
    """The training that each task of one command starts."""
    tasks = _tasks_of_srun(file, command) if starter == SRUN else _tasks_of_mpi(command)
    if tasks is None or tasks.tasks < 2:
        return
    for words, text in _commands_of_each_task(file, command):
        if NUMBERS_TASKS.search(text) or SETS_RANKS.search(text):
            return
        module = _training_without_group(_script_run_by_python(file, words))
        if module is None or (starter != SRUN and BY_ACCELERATE.search(module.text)):
            continue
        name, is_meant = Path(module.path).name, _is_made_for_several_processes(module)
        yield LoneTrainings(
            command, starter, tasks.tasks, tasks.setting, tasks.line, name, is_meant
        )
        return


def _lone_trainings_of_loops(file: CommandFile) -> Iterator[LoneTrainings]:
    """Loops that start one training on each GPU, with nothing but the GPU that differs."""
    for loop in find_loops(file):
        head = next((one for one in file.commands if one.line == loop.line), None)
        times = _count_plain_passes_of_loop(head.words) if head is not None else 0
        if head is None or times < 2:
            continue
        for command in loop.commands:
            module = _training_without_group(
                _script_started_on_each_gpu_by_loop(file, loop, command)
            )
            if module is not None:
                name = Path(module.path).name
                yield LoneTrainings(
                    command,
                    "a loop",
                    times,
                    head.text,
                    loop.line,
                    name,
                    _is_made_for_several_processes(module),
                )


def _script_started_on_each_gpu_by_loop(
    file: CommandFile, loop: ShellLoop, command: ShellCommand
) -> Path | None:
    """The script that a loop starts on each GPU in the background, with the same words; None where it does not."""
    lines = file.text.splitlines()
    text = lines[command.line - 1] if command.line <= len(lines) else ""
    variables, words = _split_assignments(command)
    is_one_a_gpu = set(variables) == {VISIBLE} and loop.loop_variables_in(variables[VISIBLE])
    if not is_one_a_gpu or BACKGROUND.search(text) is None:
        return None
    own = _without_redirections(words)
    return _script_run_by_python(file, own) if loop.is_same_in_each_pass(" ".join(own)) else None


def _split_assignments(command: ShellCommand) -> tuple[dict[str, str], tuple[str, ...]]:
    """(variables set for a command alone, its words without them), also after `do`."""
    words = without_leading_shell_keywords(command.words)
    variables = dict(command.variables)
    while words and (match := ASSIGNMENT.fullmatch(words[0])) is not None:
        variables[match[1]] = match[2]
        words = words[1:]
    return variables, without_leading_shell_keywords(words)


def _count_plain_passes_of_loop(words: tuple[str, ...]) -> int:
    """How often `for i in 0 1 2 3` runs; 0 where that is not plain."""
    if len(words) < 4 or words[0] != "for" or words[2] != "in":
        return 0
    listed = words[3:]
    span = NUMBERS.fullmatch(" ".join(listed))
    if span is not None:
        begin, end = (int(one) for one in span.groups() if one is not None)
        return end - begin + 1
    return len(listed) if all(one.isdecimal() for one in listed) else 0


def _without_redirections(words: tuple[str, ...]) -> tuple[str, ...]:
    """The words up to where the output is sent to a file."""
    end = next((n for n, word in enumerate(words) if ">" in word), len(words))
    return words[:end]


def _tasks_of_srun(file: CommandFile, command: ShellCommand) -> _TaskCount | None:
    """The tasks that srun starts in all; None if their number is not plain."""
    own = own_options_of_task_starter(command)
    total = last_option(own, "--ntasks", "-n")
    if total is not None and "$" not in total:
        count = parse_digits(total)
        return _TaskCount(count, f"--ntasks={total}", command.line) if count else None
    nodes_option = last_option(own, "--nodes", "-N")
    is_all = nodes_option is None or NODES_OF_SLURM.fullmatch(nodes_option) is not None
    nodes = (node_count_of_job(file) or 1) if is_all else parse_digits(nodes_option)
    if nodes is None:
        return None
    per_node = last_option(own, "--ntasks-per-node", "--tasks-per-node")
    if per_node is not None:
        count = parse_digits(per_node)
        setting = f"--ntasks-per-node={per_node}"
        return _TaskCount(nodes * count, setting, command.line) if count else None
    # `srun --nodes=1 python x` runs once, whatever the job asks for, where it gives no tasks for a node.
    return _tasks_of_job(file, nodes, has_own_nodes=nodes_option is not None)


def _tasks_of_job(file: CommandFile, nodes: int, *, has_own_nodes: bool) -> _TaskCount | None:
    """The tasks that a job asks for, which srun takes where it says nothing."""
    for name in ("--ntasks-per-node", "--tasks-per-node"):
        if name in file.requests:
            value, line = file.requests[name]
            count = parse_digits(value)
            return _TaskCount(nodes * count, f"#SBATCH {name}={value}", line) if count else None
    for name in ("--ntasks", "-n"):
        if name in file.requests:
            value, line = file.requests[name]
            count = parse_digits(value)
            return _TaskCount(count, f"#SBATCH {name}={value}", line) if count else None
    for name in ("--nodes", "-N"):
        if name in file.requests and not has_own_nodes:
            value, line = file.requests[name]
            return _TaskCount(nodes, f"#SBATCH {name}={value}", line)
    return _tasks_by_gpus(file)


def _tasks_by_gpus(file: CommandFile) -> _TaskCount | None:
    """The tasks that Slurm counts by GPUs, where the job asks for some for each task and in all."""
    each, _ = file.requests.get("--gpus-per-task", ("", 0))
    every, line = next(
        (file.requests[name] for name in ("--gpus", "-G") if name in file.requests), ("", 0)
    )
    share, total = (parse_digits(one.rpartition(":")[2]) for one in (each, every))
    if not share or not total or total % share:
        return None
    return _TaskCount(total // share, f"#SBATCH --gpus={every} --gpus-per-task={each}", line)


def _tasks_of_mpi(command: ShellCommand) -> _TaskCount | None:
    """The processes that mpirun starts; None if their number is not plain."""
    own = own_options_of_task_starter(command)
    value = last_option(own, "-np", "-n", "--np")
    count = parse_digits(value)
    return _TaskCount(count, f"-np {value}", command.line) if count else None


def _commands_of_each_task(
    file: CommandFile, command: ShellCommand
) -> Iterator[tuple[tuple[str, ...], str]]:
    """The commands that each task runs with their text: in the line itself, in quotes or in a script beside the job."""
    # `bash -c 'python train.py'`: the command in quotes is one word.
    inner = next((word for word in command.words if " " in word and ".py" in word), None)
    if inner is not None:
        for one in parse_command_file(inner, "command.sh").commands[:MAX_STARTED]:
            yield one.words, inner
        return
    script = script_run_by_tasks(command, file)
    if script is not None:
        for one in script.commands[:MAX_STARTED]:
            yield one.words, script.text
        return
    yield command.words, command.text


def _script_run_by_python(file: CommandFile, words: tuple[str, ...]) -> Path | None:
    """The script that Python runs; None where a launcher stands before it, or it is not here."""
    place = next((n for n, word in enumerate(words) if word.endswith(".py")), None)
    if place is None or "-m" in words[:place]:
        return None
    programs = [word.rpartition("/")[2] for word in words[:place]]
    if {"torchrun", "accelerate", "deepspeed"} & set(programs):
        return None
    starts = any(PYTHON.fullmatch(one) for one in programs) or "uv" in programs
    name = _without_folder_variable(words[place])
    return find_in_folder_or_parents(Path(file.path).parent, name) if starts else None


def _without_folder_variable(name: str) -> str:
    """`train.py` of `$HOME/train.py` and `${SLURM_SUBMIT_DIR}/train.py`: the folder of the job or of its project."""
    plain = name.rpartition("}/")[2] if name.startswith("$") else name
    return plain.partition("/")[2] if plain.startswith("$") else plain


def _training_without_group(script: Path | None) -> Module | None:
    """The script, if it trains and joins no process group without a launcher; else None."""
    if script is None:
        return None
    try:
        module = read_module_with_helpers(script)
    except TruetuneError:
        return None
    texts = [part.text for part in module.self_and_files_run_together]
    if any(JOINS_BY_ITSELF.search(text) or NEEDS_RANKS.search(text) for text in texts):
        return None
    if not trains_anything(module) or not _joins_group_only_conditionally(module):
        return None
    return module


def _joins_group_only_conditionally(module: Module) -> bool:
    """Is each call that starts a process group under a condition? Else the script ends without a launcher."""
    for call in module.calls("*.init_process_group"):
        tests = (one.test for one in module.parents(call.node) if isinstance(one, ast.If))
        if not any(CONDITION.search(ast.unparse(test)) for test in tests):
            return False
    return True


def _is_made_for_several_processes(module: Module) -> bool:
    """Is the script made for several processes: by a trainer of a library, or by the variables that it reads?"""
    return bool(
        READS_RANKS.search(module.text) or re.search(r"Trainer\(|Accelerator\(", module.text)
    )
