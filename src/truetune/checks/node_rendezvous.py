"""Finds how the nodes of a job meet: how many nodes a command expects, and the address at which
they connect.

A launcher is run on each node, and all of them connect to one address, that of the first. Variables are followed where
the file sets them once; the number of nodes that Slurm gives a job is what the job asks for. What an environment from
outside may set (`${MASTER_ADDR:-localhost}`) is never taken for a value.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from truetune.errors import TruetuneError
from truetune.parsing.shell_commands import (
    CommandFile,
    ShellCommand,
    last_option,
    options_before_script,
    parse_command_file,
    parse_digits,
    variables_set_once_unconditionally,
)
from truetune.settings import located_document

NODES_OF_SLURM = re.compile(r"\$\{?SLURM_(?:NNODES|JOB_NUM_NODES)\}?")
VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
LOOPBACK = re.compile(
    r"(?:localhost(?:\.localdomain)?|127(?:\.\d{1,3}){3}|0\.0\.0\.0|::1|\[::1\])(?::\S*)?"
)
"""Addresses that mean, on each machine, the machine itself"""
# Names that no script sets: a substitution is run by the shell, and its value is not in the file.
HOST, ESCAPED, UNKNOWN = "HOSTNAME", "HOSTNAME_OF_EACH_NODE", "OF_ANOTHER_COMMAND"
"""Variables that stand for `$(hostname)`, for `\\$(hostname)` and for what other commands print"""
OWN_NAME = re.compile(rf"\$\{{?(?:{HOST}|{ESCAPED}|SLURMD_NODENAME)\}}?(?::\S*)?")
"""What gives the name of the machine that evaluates it"""
ESCAPED_NAME = re.compile(r"\\(\$\{?)(?:HOSTNAME|SLURMD_NODENAME)\b")
TORCHRUN = (("torchrun",), ("-m", "torch.distributed.run"), ("-m", "torch.distributed.launch"))
LAUNCHERS = re.compile(
    r"\btorchrun\b|torch\.distributed\.(?:run|launch)\b|\baccelerate launch\b|\bdeepspeed\b"
)
STARTERS = frozenset(("srun", "ssh", "pdsh", "clush", "mpirun", "mpiexec", "bash", "sh", "zsh"))
"""Programs that take a command as one word"""
INNER_SHELLS = ("bash -c", "bash -lc", "sh -c", "zsh -c")
NODES_OF_STEP = ("--nodes", "-N", "--nodelist", "-w", "--relative", "-r")
"""Options of srun by which a step takes some of the job's nodes"""
TASKS_OF_STEP = ("--ntasks", "-n")
GLUED_NODES = re.compile(r"-[Nr]\d+|-n1")
"""The same in one word"""
FIRST_NODE = re.compile(r"--(?:node|machine)[_-]rank[= ]+0\b")
STARTS_ELSEWHERE = re.compile(r"\b(?:srun|ssh|pdsh|clush|mpirun|mpiexec|prun|jsrun|ray)\b")
MANAGES = ("MASTER_ADDR", "lightning", "submitit", "scontrol")
"""In a script: it finds the first node by itself"""
# Chosen: address, host, node and job; a circle of variables ends there.
DEPTH = 4
"""Variables that are followed from one: address, host, node"""
# Chosen, not measured: the imports of a script, which say what finds the first node, stand at its top.
HEAD = 1 << 20
# Chosen, not measured: a folder of scripts has fewer; one of data is not read through.
MAX_CONFIGS = 100
"""Files of a folder that are looked through for accelerate's configurations"""


class NodeRendezvous(NamedTuple):
    """A command that starts processes on several nodes, and where they meet."""

    command: ShellCommand
    nodes: int
    address: str
    """As the command gives it, with the variables that the file sets; empty where it gives none"""
    setting: str
    """What names the address: `--rdzv-endpoint`, `MASTER_ADDR`"""
    on_each_node: bool
    """Is what the address is made of evaluated on each node, and not once for all?"""


class StartedCommand(NamedTuple):
    """The words of a launch, and how they come to the nodes."""

    words: tuple[str, ...]
    on_each_node: bool


class _Rendezvous(NamedTuple):
    """What the options of a launcher say of where its nodes meet."""

    nodes: str
    """As it is written: `2`, `1:4`, `$SLURM_NNODES`"""
    address: str
    """Empty if none is given"""
    setting: str
    """The option, or the key of a file, that gives the address"""


def find_node_rendezvous(file: CommandFile) -> Iterator[NodeRendezvous]:
    """The launches of a file whose number of nodes is plain, and more than one."""
    if FIRST_NODE.search(file.text) and not STARTS_ELSEWHERE.search(file.text):
        return  # the first node meets itself, and so do all where one machine plays several
    text = _replace_substitutions_by_variables(file.text)
    assigned = variables_set_once_unconditionally(text)
    job_nodes = node_count_of_job(file)
    for command in parse_command_file(text, file.path).commands:
        for start in started_commands(file, command, assigned):
            meeting = _rendezvous_of_launch(file, command, start, assigned, job_nodes)
            if meeting is not None and meeting.nodes > 1:
                yield meeting


def _replace_substitutions_by_variables(text: str) -> str:
    """A text with variables instead of `$(...)` and of backticks, which the parser of commands
    would split.
    """
    # Backticks first: `$(...)` may stand inside of them, and not the other way round.
    text = re.sub(r"`([^`\n]*)`", lambda found: f"$({found[1]})", text)
    text = ESCAPED_NAME.sub(rf"\g<1>{ESCAPED}", text)
    parts: list[str] = []
    begin = 0
    at = text.find("$(")
    while at >= 0:
        end = _end_of_substitution(text, at)
        is_own = text[at + 2 : end].strip().startswith("hostname")
        # `\$(hostname)` is handed on as it is, to be evaluated by the shell of each node.
        is_escaped = text[at - 1 : at] == "\\"
        parts.append(text[begin : at - is_escaped])
        name = (ESCAPED if is_escaped else HOST) if is_own else UNKNOWN
        parts.append(f"${{{name}}}")
        begin = end + 1
        at = text.find("$(", begin)
    return "".join(parts) + text[begin:]


def _end_of_substitution(text: str, begin: int) -> int:
    """The position of the bracket that closes `$(`; the end of the text if none does."""
    depth = 0
    for place in range(begin + 1, len(text)):
        depth += (text[place] == "(") - (text[place] == ")")
        if depth == 0:
            return place
    return len(text)


def node_count_of_job(file: CommandFile) -> int | None:
    """The nodes that a job asks for; None where it is no job, or the number is not plain."""
    for name in ("--nodes", "-N"):
        if name in file.requests:
            return parse_digits(file.requests[name][0])
    return None


def started_commands(
    file: CommandFile, command: ShellCommand, assigned: Mapping[str, str]
) -> Iterator[StartedCommand]:
    """A command, its variables that hold several words taken apart; and the commands of a `bash -c '...'` in it."""
    words = split_variables(command.words, assigned)
    programs = {word.rpartition("/")[2] for word in words}
    # Without #SBATCH lines and srun nothing says how often a command runs: it is taken for one on each node.
    is_each = not file.requests and "srun" not in programs
    inner = next((word for word in words if " " in word and LAUNCHERS.search(word)), None)
    if inner is None or STARTERS.isdisjoint(programs):
        yield StartedCommand(words, is_each or command.line in _lines_of_inner_shells(file.text))
        return
    # In single quotes the variables of the inner command are read by each node's own shell.
    is_quoted = re.search(rf"'\s*{LAUNCHERS.pattern}", file.text) is not None
    for one in parse_command_file(inner, "command.sh").commands:
        yield StartedCommand(split_variables(one.words, assigned), is_each or is_quoted)


@lru_cache(maxsize=4)
def _lines_of_inner_shells(text: str) -> frozenset[int]:
    """The lines inside of `srun bash -c '` and the quote that ends it: the shell of each node evaluates them."""
    inside: set[int] = set()
    is_open = False
    for number, line in enumerate(text.splitlines(), 1):
        if is_open and "'" in line:
            is_open = False
        elif is_open:
            inside.add(number)
        else:
            is_open = _opens_multiline_inner_shell(line)
    return frozenset(inside)


def _opens_multiline_inner_shell(line: str) -> bool:
    """Does a line hand a shell of the nodes a text in single quotes that ends on a later line?"""
    before, quote, behind = line.partition("'")
    if not quote or "'" in behind or not before.rstrip().endswith(INNER_SHELLS):
        return False
    return STARTS_ELSEWHERE.search(before) is not None


def split_variables(words: Iterable[str], assigned: Mapping[str, str]) -> tuple[str, ...]:
    """The words of a command, those of its variables that hold several one by one."""
    return tuple(part for word in words for part in _split_variable(word, assigned))


def _split_variable(word: str, assigned: Mapping[str, str]) -> tuple[str, ...]:
    """A word as it is; a variable that holds a whole command becomes its words."""
    value = _resolve_variables(word, assigned)
    # A word with blanks is one argument, unless the shell splits the variable that it is.
    if " " not in value or not (VARIABLE.fullmatch(word) or word in assigned.values()):
        return (value,)
    try:
        return tuple(shlex.split(value))
    except ValueError:
        return (value,)


def _resolve_variables(word: str, assigned: Mapping[str, str]) -> str:
    """A word with what the file sets once instead of its variables."""
    for _ in range(DEPTH):
        after = VARIABLE.sub(lambda one: assigned.get(one[1] or one[2], one[0]), word)
        if after == word:
            break
        word = after
    return word


def _rendezvous_of_launch(
    file: CommandFile,
    command: ShellCommand,
    start: StartedCommand,
    assigned: Mapping[str, str],
    job_nodes: int | None,
) -> NodeRendezvous | None:
    """The number of nodes and the address of one launch; None if it starts no processes on several
    nodes.
    """
    view = ShellCommand(start.words, command.line, command.text)
    folder = Path(file.path).parent
    # A view with the words taken apart: the readers of launchers look at words, not at text.
    launched = (
        _torchrun_rendezvous(view)
        or _accelerate_rendezvous(view, folder)
        or _deepspeed_rendezvous(view, folder)
    )
    if launched is None:
        return _rendezvous_by_master_addr(file, command, start, assigned, job_nodes)
    count = (
        job_nodes
        if NODES_OF_SLURM.fullmatch(launched.nodes)
        # `1:4` is an elastic launch: up to four nodes.
        else parse_digits(launched.nodes.rpartition(":")[2])
    )
    if count is None:
        return None
    on_each_node = start.on_each_node or ESCAPED in launched.address
    return NodeRendezvous(command, count, launched.address, launched.setting, on_each_node)


def _torchrun_rendezvous(command: ShellCommand) -> _Rendezvous | None:
    """The rendezvous of a torchrun command; None for any other."""
    behind = (command.words_following(*words) for words in TORCHRUN)
    options = next((words for words in behind if words is not None), None)
    if options is None:
        return None
    own = options_before_script(options)
    nodes = last_option(own, "--nnodes")
    if nodes is None or "--standalone" in own or _is_command_of_first_node(own, "--node-rank"):
        return None
    for setting in ("--rdzv-endpoint", "--master-addr"):
        address = last_option(own, setting)
        if address:
            return _Rendezvous(nodes, address, setting)
    return _Rendezvous(nodes, "", "--rdzv-endpoint")


def _accelerate_rendezvous(command: ShellCommand, folder: Path) -> _Rendezvous | None:
    """The rendezvous of an accelerate launch, by its options or its configuration; None for any
    other.
    """
    options = command.words_following("accelerate", "launch")
    if options is None:
        return None
    own = options_before_script(options)
    name = last_option(own, "--config-file") or ""
    if "$" in name:
        # `--config_file "$1"`: each machine is given its own of the files that stand beside the script.
        name = _config_of_later_machine(folder)
    config = _accelerate_config(folder / name) if name else {}
    nodes = last_option(own, "--num-machines") or str(config.get("num_machines", ""))
    address = last_option(own, "--main-process-ip")
    is_first = _is_command_of_first_node(own, "--machine-rank")
    if address is None:
        setting = f"main_process_ip of {name}"
        # "?": an address stands in a file that is not here, so that nothing can be wrong with it.
        configured = str(config.get("main_process_ip") or "?")
        return None if is_first else _Rendezvous(nodes, configured, setting)
    return None if is_first else _Rendezvous(nodes, address, "--main_process_ip")


def _deepspeed_rendezvous(command: ShellCommand, folder: Path) -> _Rendezvous | None:
    """The rendezvous of a DeepSpeed launch that names an address; else it takes the first line of
    its host file. None for any other.
    """
    options = command.words_following("deepspeed")
    if options is None:
        return None
    own = options_before_script(options)
    address = last_option(own, "--master-addr")
    if not address:
        return None
    nodes = last_option(own, "--num-nodes") or str(
        _count_hosts(folder / (last_option(own, "--hostfile") or "."))
    )
    return _Rendezvous(nodes, address, "--master_addr")


def _count_hosts(path: Path) -> int:
    """The number of machines that a host file names; 0 if it can't be read."""
    try:
        with path.open("rb") as file:
            lines = file.read(HEAD).decode("utf-8", "replace").splitlines()
    except OSError:
        return 0
    # `#`: a host file may have comments.
    return sum(1 for line in lines if line.strip() and not line.lstrip().startswith("#"))


def _rendezvous_by_master_addr(
    file: CommandFile,
    command: ShellCommand,
    start: StartedCommand,
    assigned: Mapping[str, str],
    job_nodes: int | None,
) -> NodeRendezvous | None:
    """The rendezvous of a script that Slurm itself starts on each node, at MASTER_ADDR; None if the
    script finds the first node itself, or can't be read.
    """
    words = start.words
    script = next((word for word in words if word.endswith(".py")), None)
    is_python = any(re.fullmatch(r"python[\d.]*", word.rpartition("/")[2]) for word in words)
    if "srun" not in words[:2] or script is None or not is_python or job_nodes is None:
        return None
    if does_srun_take_fewer_nodes(words) or _may_script_find_first_node(
        Path(file.path).parent / script
    ):
        return None
    exported = exported_variable(words[: words.index(script)], "MASTER_ADDR")
    own = _resolve_variables(command.variables.get("MASTER_ADDR", ""), assigned)
    address = exported or own or _resolve_variables("$MASTER_ADDR", assigned)
    return NodeRendezvous(command, job_nodes, address, "MASTER_ADDR", start.on_each_node)


def exported_variable(words: tuple[str, ...], name: str) -> str:
    """A variable as the words before a script set it, by `env` or `--export=`; the last counts. Empty: none does."""
    value = ""
    for word in words:
        match = re.search(rf"(?:^|,){name}=([^,\s]+)", word.partition("--export=")[2] or word)
        if match is not None:
            value = match[1]
    return value


def does_srun_take_fewer_nodes(words: tuple[str, ...]) -> bool:
    """Does srun take fewer nodes than the job, as it does for one task: `srun -n1 -r1`?"""
    if last_option(words, *NODES_OF_STEP) is not None or last_option(words, *TASKS_OF_STEP) == "1":
        return True
    return any(GLUED_NODES.fullmatch(word) for word in words)


def _may_script_find_first_node(script: Path) -> bool:
    """Does a script find the first node itself? So it may where it can't be read."""
    try:
        with script.open("rb") as file:
            text = file.read(HEAD).decode("utf-8", "replace")
    except OSError:
        # A script that can't be read may find the first node itself: nothing is said of it.
        return True
    return any(name in text for name in MANAGES)


def _is_command_of_first_node(options: tuple[str, ...], name: str) -> bool:
    """Is the command that of the first node alone? It may call itself by any name."""
    return last_option(options, name) == "0"


def _config_of_later_machine(folder: Path) -> str:
    """The name of accelerate's configuration for another machine than the first, which meets the others at itself;
    empty where no file of the folder is one."""
    try:
        files = sorted(folder.iterdir())[:MAX_CONFIGS]
    except OSError:
        return ""
    for file in files:
        config = _accelerate_config(file) if file.suffix in (".yaml", ".yml") else {}
        rank, address = config.get("machine_rank"), config.get("main_process_ip")
        if isinstance(rank, int) and rank > 0 and LOOPBACK.fullmatch(str(address)):
            return file.name
    return ""


def _accelerate_config(path: Path) -> dict[str, object]:
    """accelerate's configuration; empty where it is not there or can't be read."""
    try:
        value = located_document.read_located_document(path).value if path.is_file() else None
    except TruetuneError:
        return {}
    return value if isinstance(value, dict) else {}
