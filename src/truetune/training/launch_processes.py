"""Starts the processes of a run, by accelerate, or by torchrun where there is no GPU.

The launchers' own functions are called in this process and not their scripts, so that their settings are checked here
and signals can be passed on: the processes save a checkpoint before they end.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import psutil
import torch
from accelerate.commands.launch import launch_command, launch_command_parser
from torch.distributed import run as torchrun
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

from truetune.errors import UsageError
from truetune.settings.suggest_spelling import did_you_mean_path

SIGNALS = (signal.SIGINT, signal.SIGTERM)
# Without them accelerate prints a paragraph about each default that it takes. The port 0 lets two
# runs start on one machine.
QUIET_DEFAULTS = (
    "--num_machines",
    "1",
    "--mixed_precision",
    "no",
    "--dynamo_backend",
    "no",
    "--main_process_port",
    "0",
)
"""accelerate's own defaults, without its warnings; the precision is the run's, and the port one that is free."""


def build_launch_command(
    processes: int, config: str | None, arguments: Sequence[str], *, gpus: int
) -> list[str]:
    """The command line that starts `truetune ARGUMENTS` in several processes.

    Args:
        processes: how many.
        config: a file of `accelerate config`; None for a plain start.
        arguments: of truetune.
        gpus: how many this machine has.

    Raises:
        UsageError: fewer than one process, more than GPUs, or no such file.
    """
    if processes < 1:
        # Caught here, in the user's terms: the launchers would fail later and in theirs.
        raise UsageError(f"--launch {processes}: expected a number of processes, 1 or more")
    program = ["-m", "truetune", *arguments]
    if config is not None:
        if not Path(config).is_file():
            raise UsageError(
                f"{config}: no such file{did_you_mean_path(config)}; `accelerate config --config_file"
                f" {config}` writes one"
            )
        return [
            "accelerate",
            "launch",
            "--config_file",
            config,
            "--num_processes",
            str(processes),
            *program,
        ]
    if not gpus:
        return ["torchrun", "--standalone", "--nproc_per_node", str(processes), *program]
    if processes > gpus:
        raise UsageError(
            f"--launch {processes}: there are {gpus} GPUs, and each process needs its own"
        )
    several = ["--multi_gpu"] if processes > 1 else []
    return [
        "accelerate",
        "launch",
        *several,
        "--num_processes",
        str(processes),
        *QUIET_DEFAULTS,
        *program,
    ]


def launch_processes(
    processes: int, config: str | None, arguments: Sequence[str], say: Callable[[str], None]
) -> int:
    """Run `truetune ARGUMENTS` in so many processes, and give its exit code. Raises UsageError.

    SIGINT and SIGTERM are passed on: the processes save and end.
    """
    line = build_launch_command(processes, config, arguments, gpus=torch.cuda.device_count())
    say(" ".join(line))
    # torchrun sets 1 thread for each process where nothing is said, which makes a run on CPUs many
    # times slower.
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // processes)))
    # It prints a table about the failed process after that process has explained itself.
    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)
    with _forward_signals_to_processes() as passed, ThreadPoolExecutor(1) as pool:
        try:
            pool.submit(_run_launcher_in_thread, line).result()
        except ChildFailedError as error:
            codes = [error.failures[rank].exitcode for rank in sorted(error.failures)]
            # The process that failed by itself gives the reason; the others were then killed by a
            # signal.
            failed = next((code for code in codes if code > 0), codes[0])
            return _shell_exit_code(-passed[0] if passed else failed, say)
        except subprocess.CalledProcessError as error:
            return _shell_exit_code(-passed[0] if passed else error.returncode, say)
    return 0


def _run_launcher_in_thread(line: Sequence[str]) -> None:
    """Run the launcher in a thread of its own, where torch takes no signals: it would kill
    processes that save for over 30 seconds.
    """
    if line[0] == "torchrun":
        torchrun.main(line[1:])
    else:
        launch_command(launch_command_parser().parse_args(line[2:]))


@contextmanager
def _forward_signals_to_processes() -> Iterator[list[int]]:
    """Pass SIGINT and SIGTERM on to the processes while this lasts; the yielded list fills with
    those that came.
    """
    passed: list[int] = []

    def heard(number: int, frame: FrameType | None) -> None:
        passed.append(number)
        # Only the direct children: they are our launcher's workers, and pass nothing on of their
        # own.
        for child in psutil.Process().children():
            child.send_signal(number)

    before = {number: signal.signal(number, heard) for number in SIGNALS}
    try:
        yield passed
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _shell_exit_code(returned: int, say: Callable[[str], None]) -> int:
    """The exit code as a shell gives it: of a process that a signal ended, 128 and the number of
    the signal.
    """
    if returned >= 0:
        return returned
    if -returned not in SIGNALS:
        name = signal.Signals(-returned).name
        say(
            f"a process was ended by {name}"
            + (": the machine ran out of memory?" if name == "SIGKILL" else "")
        )
    return 128 - returned
