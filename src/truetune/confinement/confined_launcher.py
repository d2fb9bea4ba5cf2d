"""Starts a command that can write nowhere but in given folders, and that can reach no other machine.

    python -I -S confined_launcher.py --kept FOLDER --kept FOLDER -- COMMAND...

The first folder takes what the command writes elsewhere (`written`), its temporary files (`tmp`) and, in `refused`,
what a Python process of it was refused. The command gets a JSON object in TRUETUNE_GUARD that says what holds: a
`Guard`. The folder that TRUETUNE_ORDERS names, for the hook's records, is kept as well.

This process stays outside and starts the command in a child that gives up its rights first:

1. namespaces (`namespaces.py`), where the system has them: writes go to the scratch folder, the network is empty;
2. Landlock (`landlock.py`), where the kernel has it: only the folders of step 1 (or, without it, the given ones) are
   writable;
3. without namespaces a seccomp filter (`seccomp.py`) for datagrams and file modes; the command is started in a double
   of the working folder (`copy_folder_by_links.py`).

Where there is neither 1 nor 2, nothing is started, unless `--python-only` allows it: then Python's audit hook
(`truetune.probe.refuse_side_effects_of_rehearsal`) is all there is. Exit code REFUSED where nothing was started.

It outlives its own parent: when that is gone, all processes of the command are killed and the folders removed.
Standard library only, and no import of site-packages, since it is no part of the user's program.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import shutil
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))

from truetune.confinement import copy_folder_by_links, landlock, namespaces, seccomp

REFUSED_EXIT_CODE = 125
"""The exit code where nothing was started, as of `env` and `timeout`"""
GUARD_VARIABLE = "TRUETUNE_GUARD"
ORDERS_VARIABLE = "TRUETUNE_ORDERS"
"""The hook's; the folder that they name, for its records, is kept as well"""
SET_PARENT_DEATH_SIGNAL, SET_SUBREAPER = 1, 36
ENTERED, FAILED = b"e", b"f"
"""What the child reports before it becomes the command"""
WRITTEN, HERE = "written", "here"
# Chosen, not measured: settings and logs are smaller, data and weights larger; at double, copying takes longer.
MAX_COPIED_BYTES = 1_000_000
"""Bytes of a file in the working folder up to which a program may write to its copy, where there are no overlays"""
DEVICES = (*namespaces.PLAIN_DEVICES, namespaces.SHARED_MEMORY)
LAUNCHERS = (
    "torchrun",
    "accelerate",
    "deepspeed",
    "axolotl",
    "llamafactory-cli",
    "mpirun",
    "horovodrun",
)
MASTER_PORT = 29500
"""torch's own for the first process of a group"""
NO_GUARD = (
    "none of Linux's ways to confine a program works here: there is no Landlock (Linux 5.13), and"
    " no user namespaces with overlays (Linux 5.12) may be made"
)
ACCEPT_HINT = "`truetune rehearse --guard python` makes do with Python's audit hook"
HOOK_ALONE_NOTE = "Python's audit hook alone keeps the command from writing and connecting"


@dataclass(frozen=True, slots=True)
class ActiveGuard:
    """Which parts of the confinement hold in the command's processes."""

    writable: tuple[str, ...]
    """Folders and files that may be written"""
    refused: str
    """The folder that takes notes of what was refused"""
    landlock: int = 0
    """Version; 0 where it does not hold"""
    covered: tuple[str, ...] = ()
    """Folders of the user's under an overlay: what is written there is read back, and thrown away in the end"""
    own_network: bool = False
    tcp: bool = False
    """TCP is refused, or held to loopback's ports of a group of processes"""
    datagrams: bool = False
    """UDP and raw sockets are refused"""
    modes: bool = False
    """Modes, owners and times of files outside can't be changed"""
    signals: bool = False

    def actions_not_confined_by_kernel(self) -> list[str]:
        """What the kernel does not confine here, so that Python's audit hook alone does."""
        parts = (
            (bool(self.covered or self.landlock), "writing of files"),
            (self.own_network or self.tcp, "TCP connections"),
            (self.own_network or self.datagrams, "UDP"),
            (self.own_network, "Unix sockets with a path"),
            (self.modes, "file modes and times"),
            (self.signals, "signals to other processes"),
        )
        return [name for held, name in parts if not held]


def confined_command_line(
    command: Sequence[str], kept: Sequence[Path], *, python_only: bool = False
) -> list[str]:
    """The command as it is to be started, with this module in front."""
    folders = [text for folder in kept for text in ("--kept", str(folder))]
    mode = ["--python-only"] if python_only else []
    return [
        sys.executable,
        "-I",
        "-S",
        str(Path(__file__).resolve()),
        *folders,
        *mode,
        "--",
        *command,
    ]


def launch_and_wait(arguments: Sequence[str]) -> int:
    """Start the command and wait for it; gives its exit code, 128 + n where signal n ended it."""
    parser = argparse.ArgumentParser(prog="truetune.confinement.confined_launcher")
    parser.add_argument("--kept", action="append", required=True)
    parser.add_argument("--python-only", action="store_true")
    parser.add_argument(
        "--without", action="append", default=[], choices=["namespaces", "landlock"]
    )
    parser.add_argument("command", nargs="+")
    options = parser.parse_args(arguments)
    if ORDERS_VARIABLE in os.environ:
        options.kept.append(json.loads(os.environ[ORDERS_VARIABLE])["folder"])
    for name in ("tmp", "refused"):
        Path(options.kept[0], name).mkdir(exist_ok=True)
    libc = ctypes.CDLL(None)
    # Processes that the command leaves behind become ours, so that none outlives the rehearsal.
    libc.prctl(SET_SUBREAPER, 1, 0, 0, 0)
    parent = os.getppid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    child = _start_confined(options)
    numbers = (
        signal.SIGTERM,
        signal.SIGHUP,
        signal.SIGUSR1,
        signal.SIGUSR2,
        signal.SIGINT,
        signal.SIGQUIT,
    )

    def pass_on(number: int, frame: Any) -> None:
        if os.getppid() != parent:
            _kill_descendants(child)
            for folder in options.kept:
                remove_overlay_folder(folder)
            os._exit(REFUSED_EXIT_CODE)
        if not (number in (signal.SIGINT, signal.SIGQUIT) and _has_terminal_signalled_command()):
            with suppress(ProcessLookupError):
                os.kill(child, number)

    for number in numbers:
        signal.signal(number, pass_on)
    libc.prctl(SET_PARENT_DEATH_SIGNAL, int(signal.SIGTERM), 0, 0, 0)
    # The parent may have gone before the call above: then no signal will come.
    if os.getppid() != parent:
        pass_on(signal.SIGTERM, None)
    code = _wait_for_child_exit_code(child)
    _kill_descendants(child)
    return code


def _start_confined(options: argparse.Namespace) -> int:
    """Start the command confined; gives the process id of the child that runs it, or that ends with
    REFUSED.
    """
    child, reported = _fork_confined(options)
    if FAILED in reported:  # half of a view may stand there: once more, without namespaces
        os.waitpid(child, 0)
        remove_overlay_folder(os.path.join(options.kept[0], WRITTEN))
        options.without.append("namespaces")
        child, _ = _fork_confined(options)
    return child


def _fork_confined(options: argparse.Namespace) -> tuple[int, bytes]:
    """Fork a child that becomes the command; gives its id, and what it reported until then:
    ENTERED, FAILED.
    """
    (reports, report), (answer, answered) = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reports)
        os.close(answered)
        try:
            _drop_rights_and_exec_command(options, report, answer)
        except namespaces.NamespaceError:
            os.write(report, FAILED)
        except BaseException as error:
            print(f"truetune: nothing was started: {error}", file=sys.stderr)
        finally:
            sys.stderr.flush()
            os._exit(REFUSED_EXIT_CODE)
    os.close(report)
    os.close(answer)
    reported = b""
    while letter := os.read(reports, 1):
        reported += letter
        if letter == ENTERED:
            with suppress(OSError):
                namespaces.map_user_into_namespace(child)
            os.close(answered)
            answered = -1
    os.close(reports)
    if answered >= 0:
        os.close(answered)
    return child, reported


def _drop_rights_and_exec_command(
    options: argparse.Namespace, report: int, answer: int
) -> NoReturn:
    """Give up all rights but those to the given folders, then become the command. The pipes close
    with that.
    """
    kept = [os.path.realpath(folder) for folder in options.kept]
    guard = ActiveGuard((*kept, *DEVICES), os.path.join(kept[0], "refused"))
    if "namespaces" not in options.without:
        guard = _confine_by_namespaces(guard, kept, options.command, report, answer)
    namespaces.drop_capabilities()  # Landlock does not see how root changes a mount
    guard = _confine_by_landlock(guard, options)
    if not guard.covered and not guard.landlock:
        if not options.python_only:
            raise RuntimeError(f"{NO_GUARD}. {ACCEPT_HINT}")
        print(f"truetune: {NO_GUARD}: {HOOK_ALONE_NOTE}", file=sys.stderr)
    # Programs that write beside their script must find a folder in which they can.
    if not guard.covered:
        os.chdir(
            copy_folder_by_links.copy_tree_by_links(
                os.getcwd(), os.path.join(kept[0], HERE), copy_up_to=MAX_COPIED_BYTES
            )
        )
        os.environ["PWD"] = os.getcwd()
    variables = {
        **os.environ,
        **_environment_for_command(kept[0], guard),
        GUARD_VARIABLE: json.dumps(
            {**asdict(guard), "gaps": guard.actions_not_confined_by_kernel()}
        ),
    }
    # Python ignores these two, and the command would inherit that.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvpe(options.command[0], options.command, variables)
    except OSError as error:
        raise RuntimeError(f"{options.command[0]}: can't be started: {error.strerror}") from None


def _confine_by_namespaces(
    guard: ActiveGuard, kept: list[str], command: Sequence[str], report: int, answer: int
) -> ActiveGuard:
    """Confine by namespaces; gives the guard with what holds then. Raises NamespaceError where the
    system gives none.
    """
    namespaces.enter_namespaces()
    os.write(report, ENTERED)
    os.read(answer, 1)  # ends when the parent has mapped the user
    scratch = os.path.join(kept[0], WRITTEN)
    os.makedirs(scratch)
    view = namespaces.isolate_files(kept, scratch, _folders_command_may_write(command))
    return replace(
        guard,
        writable=(*guard.writable, *view.covered),
        covered=view.covered,
        own_network=True,
        tcp=True,
        datagrams=True,
        modes=True,
    )


def _folders_command_may_write(command: Sequence[str]) -> list[str]:
    """Paths of folders that programs write to: the working folder, home, caches, and those of the
    script and other words.
    """
    named = [
        os.environ.get(name, "")
        for name in ("HOME", "HF_HOME", "HF_DATASETS_CACHE", "XDG_CACHE_HOME")
    ]
    words = [
        word if os.path.isdir(word) else os.path.dirname(word)
        for word in command[1:]
        if os.path.exists(word)
    ]
    return [os.getcwd(), *(folder for folder in (*named, *words) if folder)]


def _confine_by_landlock(guard: ActiveGuard, options: argparse.Namespace) -> ActiveGuard:
    """Confine by Landlock, and by a seccomp filter where there is no network of its own; gives the
    guard with what holds then.
    """
    # Also where Landlock is missing: sudo would leave the namespaces.
    landlock.forbid_new_privileges()
    number = 0 if "landlock" in options.without else landlock.landlock_version()
    if number == 0:
        return guard
    ports = None if guard.own_network else _rendezvous_ports_of_command(options.command)
    held = landlock.confine_writes(
        guard.writable, connect_ports=ports, bind_ports=None if ports != () else ()
    )
    guard = replace(guard, landlock=held.version, signals=held.scoped, tcp=guard.tcp or held.tcp)
    if guard.own_network or not seccomp.knows_this_architecture():
        return guard
    seccomp.restrict_system_calls(tcp=held.tcp)
    return replace(guard, tcp=True, datagrams=True, modes=True)


def _rendezvous_ports_of_command(command: Sequence[str]) -> Sequence[int]:
    """Ports by which processes of one training find each other; none where the command starts a single process.

    Landlock knows no addresses. Those ports are the ones that no server has that is known by its port.
    """
    names = {Path(word).name for word in command}
    if not names & {*LAUNCHERS} and not any(
        "torch.distributed" in word or "accelerate" in word for word in command
    ):
        return ()
    # Linux's default range of ports that programs get when they ask for any.
    first, last = 32768, 60999
    with suppress(OSError, ValueError):
        first, last = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    return (
        MASTER_PORT,
        int(os.environ.get("MASTER_PORT", MASTER_PORT)),
        *range(max(first, 32768), last + 1),
    )


def _environment_for_command(folder: str, guard: ActiveGuard) -> dict[str, str]:
    """The command's environment variables: where caches and trackers of known packages go, and that
    nothing is asked of the hub.
    """
    temporary = os.path.join(folder, "tmp")
    variables = dict.fromkeys(("TMPDIR", "TMP", "TEMP"), temporary)
    variables |= {name: os.path.join(temporary, name.lower()) for name in REDIRECTED_VARIABLES}
    variables |= SWITCHED_OFF_VARIABLES
    # Under overlays caches may stay where they are: what is written to them lands in the scratch folder.
    if not guard.covered:
        variables |= {name: os.path.join(temporary, name.lower()) for name in CACHE_VARIABLES}
        variables |= {
            "HF_DATASETS_CACHE": copy_folder_by_links.copy_tree_by_links(
                str(_datasets_cache_folder()), os.path.join(temporary, "datasets")
            )
        }
    return variables


REDIRECTED_VARIABLES = (
    "WANDB_DIR",
    "WANDB_CACHE_DIR",
    "WANDB_CONFIG_DIR",
    "WANDB_DATA_DIR",
    "TENSORBOARD_LOGGING_DIR",
    "TRACKIO_DIR",
    "COMET_OFFLINE_DIRECTORY",
    "MLFLOW_TRACKING_URI",
    "SWANLAB_LOG_DIR",
    "CLEARML_CACHE_DIR",
)
"""Trackers' own folders"""
SWITCHED_OFF_VARIABLES = {
    # Trackers wait for a network that is not there, some for minutes.
    "WANDB_MODE": "disabled",
    "COMET_MODE": "disabled",
    "NEPTUNE_MODE": "debug",
    "CLEARML_OFFLINE_MODE": "1",
    "SWANLAB_MODE": "disabled",
    "DISABLE_MLFLOW_INTEGRATION": "TRUE",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "DO_NOT_TRACK": "1",
    # A miniature needs no GPU, and one that trains there must not lose memory to it.
    "CUDA_VISIBLE_DEVICES": "",
    "PYTHONDONTWRITEBYTECODE": "1",
}
"""Trackers, the hub, and devices; a program that is not hooked could train on those for hours, for nothing"""
CACHE_VARIABLES = (
    "HF_MODULES_CACHE",
    "TORCHINDUCTOR_CACHE_DIR",
    "TRITON_CACHE_DIR",
    "TORCH_EXTENSIONS_DIR",
    "MPLCONFIGDIR",
    "NUMBA_CACHE_DIR",
    "CUDA_CACHE_PATH",
    "XDG_RUNTIME_DIR",
)
"""Those that are written where there is no overlay over them"""


def _datasets_cache_folder() -> Path:
    """The cache folder of Hugging Face datasets."""
    home = os.environ.get("HF_HOME") or os.path.join(
        os.environ.get("XDG_CACHE_HOME", "~/.cache"), "huggingface"
    )
    return Path(os.environ.get("HF_DATASETS_CACHE") or os.path.join(home, "datasets")).expanduser()


def _wait_for_child_exit_code(child: int) -> int:
    """Wait for a child; gives its exit code as a shell does. Orphans of the command that end in the
    meantime are ours, and forgotten.
    """
    while True:
        ended, status = os.wait()
        if ended == child:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def _kill_descendants(child: int) -> None:
    """Kill all processes that are left of the command: orphans have become our own children."""
    while True:
        # Again and again, for a process may start others while it is being killed.
        left = _list_descendants(os.getpid())
        for process in left:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)
        try:
            os.wait()
        except ChildProcessError:
            return


def _list_descendants(process: int) -> list[int]:
    """The ids of all processes below one; a process that ends meanwhile has no children any more."""
    descendants = []
    with suppress(OSError):
        for children in Path(f"/proc/{process}/task").glob("*/children"):
            for number in map(int, children.read_text().split()):
                descendants += [number, *_list_descendants(number)]
    return descendants


def remove_overlay_folder(folder: str) -> None:
    """Remove a folder that overlays have used: the kernel leaves folders in it that nobody may read."""
    for place, names, _ in os.walk(folder):
        for name in names:
            path = os.path.join(place, name)
            if not os.path.islink(path):
                with suppress(OSError):
                    os.chmod(path, 0o700)
    shutil.rmtree(folder, ignore_errors=True)


def _has_terminal_signalled_command() -> bool:
    """Has the terminal given the signal to the command as well?"""
    try:
        return os.tcgetpgrp(2) == os.getpgrp()
    except OSError:
        return False


if __name__ == "__main__":
    sys.exit(launch_and_wait(sys.argv[1:]))
