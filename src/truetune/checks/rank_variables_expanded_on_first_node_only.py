"""Finds ranks (numbers of nodes and tasks) that a batch script expands once on the first node, so
that all nodes get the same.

The body of a Slurm job runs on the first node, where SLURM_NODEID, SLURM_PROCID and SLURM_LOCALID are 0. `srun` starts
its command on every node, but the words of that command were expanded before. Only a shell that srun starts reads the
number of its own node: in single quotes, behind a backslash, or in a script of its own.

The trade-off: here-documents are taken for text of another shell, so that one without quotes around its mark, which
the job does expand, is not told.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from truetune.checks.find_launchers_repeated_per_task import script_run_by_tasks
from truetune.checks.node_rendezvous import (
    TORCHRUN,
    does_srun_take_fewer_nodes,
    exported_variable,
    node_count_of_job,
    split_variables,
    started_commands,
)
from truetune.checks.read_settings_in_launch_files import find_in_folder_or_parents
from truetune.parsing.input_limits import SETTINGS, InputLimitError
from truetune.parsing.read_files_within_limits import read_bytes_within_limit
from truetune.parsing.shell_commands import (
    CommandFile,
    ShellCommand,
    last_option,
    options_before_script,
    parse_command_file,
    parse_digits,
    variables_set_once_unconditionally,
)

NUMBER = r"SLURM_(?:NODEID|PROCID|LOCALID)"
OWN_NUMBER = re.compile(NUMBER)
READ_ONCE = re.compile(rf"\$[{{(\s]*({NUMBER})\b")
"""`$SLURM_NODEID`, `${SLURM_NODEID}`, `$((SLURM_NODEID))`"""
OF_EACH_TASK = "NUMBER_OF_EACH_TASK"
"""Stands for the numbers that a shell on each node reads"""
SHELL_PARTS = re.compile(
    r"\\[\s\S]|'[^']*(?:'|\Z)|\"(?:\\[\s\S]|[^\"\\])*(?:\"|\\?\Z)|(?<!\S)#[^\n]*"
    r"|<<-?[ \t]*(?P<quote>['\"]?)(?P<mark>\w+)(?P=quote)"
)
"""What a shell doesn't expand, or keeps together: escaped signs, quotes, comments, the marks of here-documents"""
ESCAPED_NUMBER = re.compile(rf"(\\\$\{{?){NUMBER}")
MANAGES = re.compile(rf"{NUMBER}|lightning|submitit|deepspeed|mpi4py|accelerate", re.I)
"""In a script: it may find its rank by itself"""
RANK_VARIABLES = ("RANK", "NODE_RANK")


class RankReadOnce(NamedTuple):
    """A launch whose copies are all told the same number."""

    command: ShellCommand
    setting: str
    """The option or variable, as it is spelled: `--node-rank`, `RANK`"""
    value: str
    """What it is given: `$SLURM_NODEID`, `0`"""
    variable: str
    """The variable of Slurm that is read once; empty for a plain number"""
    copies: int
    """Nodes or tasks that are told it"""
    line: int
    """Where the variable is read"""


class _NodeRank(NamedTuple):
    """The option of a launcher that numbers its node."""

    setting: str
    value: str
    nodes: str
    """The number of nodes as it is written; empty if it is not given"""


def find_launches_sharing_one_rank(file: CommandFile) -> Iterator[RankReadOnce]:
    """The launches of a Slurm job in which every node, or every task, is told the same number."""
    if not file.requests or "srun" not in file.text:
        return
    marked = _rename_node_rank_variables_and_join_quotes(file.text)
    job = parse_command_file(marked, file.path)
    assigned = variables_set_once_unconditionally(marked)
    for command in job.commands:
        if command.words[0].rpartition("/")[2] != "srun" or does_srun_take_fewer_nodes(
            command.words
        ):
            continue
        rank_read_once = _launcher_whose_nodes_share_one_rank(
            job, command, assigned
        ) or _script_whose_tasks_share_one_rank(job, command, assigned)
        if rank_read_once is not None:
            line = _line_that_reads_variable(file.text, rank_read_once.variable) or command.line
            yield rank_read_once._replace(line=line)


def _rename_node_rank_variables_and_join_quotes(text: str) -> str:
    """A script in which the numbers that shells on the nodes read have another name, and each quote is on one line."""
    parts: list[str] = []
    begin = 0
    for match in _quoted_and_commented_parts(text):
        parts.append(text[begin : match.start()])
        begin = match.end()
        text_of_match = match[0]
        if text_of_match.startswith("<<"):
            begin = _end_of_here_document(text, match)
            text_of_match = OWN_NUMBER.sub(OF_EACH_TASK, text[match.start() : begin])
        elif text_of_match.startswith("'"):
            text_of_match = _join_quoted_commands(OWN_NUMBER.sub(OF_EACH_TASK, text_of_match))
        elif text_of_match.startswith('"'):
            text_of_match = _join_quoted_commands(
                ESCAPED_NUMBER.sub(rf"\g<1>{OF_EACH_TASK}", text_of_match)
            )
        elif text_of_match.startswith("\\$"):
            number = OWN_NUMBER.match(text, begin + (text[begin : begin + 1] == "{"))
            begin = number.end() if number is not None else begin
            text_of_match = f"${OF_EACH_TASK}" if number is not None else text_of_match
        parts.append(text_of_match)
    return "".join(parts) + text[begin:]


def _quoted_and_commented_parts(text: str) -> Iterator[re.Match[str]]:
    """The parts of a script that are quoted, escaped or commented, and none that stands in a here-document."""
    at = 0
    while (match := SHELL_PARTS.search(text, at)) is not None:
        yield match
        at = _end_of_here_document(text, match) if match["mark"] else match.end()


def _end_of_here_document(text: str, mark: re.Match[str]) -> int:
    """Where a here-document ends; the end of the text where its mark never comes."""
    end = re.compile(rf"^[ \t]*{mark['mark']}[ \t]*$", re.M).search(text, mark.end())
    return end.end() if end is not None else len(text)


def _join_quoted_commands(quoted: str) -> str:
    """A text in quotes whose lines are commands, as one line."""
    lines = [line.strip() for line in quoted.splitlines()]
    kept = [line for line in lines if line and not line.startswith("#")]
    return re.sub(r"\\; ", " ", "; ".join(kept)) if len(kept) > 1 else quoted


def _launcher_whose_nodes_share_one_rank(
    job: CommandFile, command: ShellCommand, assigned: Mapping[str, str]
) -> RankReadOnce | None:
    """The launcher of processes of which every node starts one with the same number."""
    for words in _commands_started_by_srun(job, command, assigned):
        options = _node_rank_option_of_launcher(ShellCommand(words, command.line, command.text))
        if options is None:
            continue
        setting, value = options.setting, options.value
        nodes = node_count_of_job(job) or parse_digits(options.nodes)
        match = READ_ONCE.search(value)
        if nodes is None or nodes < 2 or not (match or value.isdecimal()):
            continue
        return RankReadOnce(command, setting, value, match[1] if match else "", nodes, command.line)
    return None


def _commands_started_by_srun(
    job: CommandFile, command: ShellCommand, assigned: Mapping[str, str]
) -> Iterator[tuple[str, ...]]:
    """The commands that srun starts, in the line itself, in quotes, or in a script beside the job."""
    for one in started_commands(job, command, assigned):
        yield one.words
    script = script_run_by_tasks(command, job)
    if script is None:
        return
    text = OWN_NUMBER.sub(OF_EACH_TASK, script.text)
    own = parse_command_file(text, script.path)
    outer = {name: value for name, value in assigned.items() if not re.search(rf"\b{name}=", text)}
    for inner in own.commands:
        yield split_variables(inner.words, outer)


def _node_rank_option_of_launcher(command: ShellCommand) -> _NodeRank | None:
    """The option by which a launcher numbers its node; None if it reads none."""
    for words in TORCHRUN:
        options = command.words_following(*words)
        if options is not None:
            own = options_before_script(options)
            return _node_rank_unless_launcher_numbers_nodes(own, "--node-rank", "--nnodes")
    options = command.words_following("accelerate", "launch")
    if options is not None:
        own = options_before_script(options)
        # A configuration may meet dynamically, where the number is not heeded.
        if last_option(own, "--config-file") is not None:
            return None
        return _node_rank_unless_launcher_numbers_nodes(own, "--machine-rank", "--num-machines")
    options = command.words_following("deepspeed")
    own = options_before_script(options) if options is not None else ()
    return (
        _node_rank_unless_launcher_numbers_nodes(own, "--node-rank", "--num-nodes")
        if "--no_ssh" in own
        else None
    )


def _node_rank_unless_launcher_numbers_nodes(
    own: tuple[str, ...], setting: str, count: str
) -> _NodeRank | None:
    """The option `setting` with its value, unless the launcher numbers the nodes by itself (c10d, etcd)."""
    value = last_option(own, setting)
    backend = last_option(own, "--rdzv-backend") or "static"
    if not value or backend != "static" or "--standalone" in own:
        return None
    return _NodeRank(setting, value, last_option(own, count) or "")


def _script_whose_tasks_share_one_rank(
    job: CommandFile, command: ShellCommand, assigned: Mapping[str, str]
) -> RankReadOnce | None:
    """A script that srun starts in several tasks, all of which are told one rank by the environment."""
    tasks = _count_tasks(job, command.words)
    script = next((word for word in command.words if word.endswith(".py")), None)
    if tasks is None or tasks < 2 or script is None or _may_script_find_rank(job, script):
        return None
    before = command.words[: command.words.index(script)]
    for name in RANK_VARIABLES:
        own = exported_variable(before, name) or command.variables.get(name)
        value = own or assigned.get(name, "")
        match = READ_ONCE.search(value)
        if match is not None:
            return RankReadOnce(command, name, value, match[1], tasks, command.line)
    return None


def _count_tasks(job: CommandFile, words: tuple[str, ...]) -> int | None:
    """How many tasks srun starts; None where it isn't plain."""
    own = last_option(words, "--ntasks", "-n")
    asked = own or next(
        (job.requests[name][0] for name in ("--ntasks", "-n") if name in job.requests), None
    )
    if asked is not None:
        return parse_digits(asked)
    each = job.requests.get("--ntasks-per-node", ("1", 0))[0]
    per_node = parse_digits(last_option(words, "--ntasks-per-node") or each)
    return None if per_node is None else per_node * (node_count_of_job(job) or 1)


def _may_script_find_rank(job: CommandFile, script: str) -> bool:
    """May a script find its rank itself? So it may where it can't be read."""
    path = find_in_folder_or_parents(Path(job.path).parent, script)
    if path is None:
        return True
    try:
        text = read_bytes_within_limit(path, SETTINGS).decode("utf-8", "replace")
    except (OSError, InputLimitError):
        return True
    return MANAGES.search(text) is not None


def _line_that_reads_variable(text: str, variable: str) -> int | None:
    """The first line of code that reads a variable; None where none does."""
    if not variable:
        return None
    for number, line in enumerate(text.splitlines(), 1):
        if variable in line and not line.lstrip().startswith("#"):
            return number
    return None
