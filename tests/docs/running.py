"""Run a `truetune` command, Python code or a script in a folder.

truetune and Python code run in children of a fork server that has imported torch and the trainers once.
"""

from __future__ import annotations

import multiprocessing
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from tests.preloaded import (
    LIGHT_LIBRARIES,
    commands_python,
    libraries_python,
    modules_of_truetune,
)

ROOT = Path(__file__).parents[2]
LIMIT = 300.0
"""Seconds that one may take"""
LAUNCHERS = ("torchrun", "accelerate", "trl")
"""Installed programs that start a training; by a Python that has imported the libraries already"""
GLOO = "terminate called without an active exception"
"""Gloo's threads meet the end of Python while they let go of tensors: pytorch/pytorch#190489"""
HEAVY = (
    "torch", "transformers", "peft", "datasets", "trl", "torch._dynamo", "transformers.trainer", "wandb",
    "transformers.models.auto.modeling_auto", "transformers.models.llama.modeling_llama", "trl.trainer.sft_trainer",
)  # fmt: skip
"""With the modules that transformers and trl import only when they are used"""


@dataclass(frozen=True, slots=True)
class Ran:
    """What one did."""

    code: int
    said: str
    """Standard output and error"""


def truetune(arguments: Sequence[str], folder: Path) -> Ran:
    """`truetune` with these arguments; once more where gloo ended a process of torchrun after its work."""
    ran = _forked(_truetune, (list(arguments),), folder)
    if "torchrun" in arguments and GLOO in ran.said:
        ran = _forked(_truetune, (list(arguments),), folder)
    return ran


def python(code: str, names: Sequence[str], folder: Path, where: str) -> Ran:
    """Python code; `names` are those that tests.docs.preludes makes for it."""
    return _forked(_python, (code, list(names), where), folder)


def script(text: str, folder: Path) -> Ran:
    """A shell script that ends at the first command whose exit code is more than 1 (findings)."""
    env = environment(folder)
    done = subprocess.run(
        ["bash", "-uc", f"trap 'code=$?; [ $code -le 1 ] || exit $code' ERR\n{text}"], cwd=folder, env=env,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
        timeout=LIMIT,
    )  # fmt: skip
    return Ran(done.returncode, done.stdout)


def served(arguments: Sequence[str], folder: Path) -> Ran:
    """`truetune view`: started, its page asked for, and interrupted."""
    port = r"--port(=| )\S+"
    line = re.sub(port, "", shlex.join([sys.executable, "-m", "truetune", *arguments, "--no-open"]))
    said = ""
    with subprocess.Popen(
        shlex.split(line),
        cwd=folder,
        env=environment(folder),
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as running:
        assert running.stdout is not None
        for told in running.stdout:
            said += told
            if found := re.search(r"http://127\.0\.0\.1:\d+\S*", told):
                with urlopen(found[0], timeout=30) as page:
                    said += f"{page.status}\n"
                break
        for _ in range(3):
            running.send_signal(signal.SIGINT)
            try:
                running.wait(20)
                break
            except subprocess.TimeoutExpired:
                said += "not ended by an interrupt\n"
        else:
            running.kill()
        said += running.stdout.read()
    return Ran(0 if running.returncode in (0, 130) else running.returncode, said)


def environment(folder: Path) -> dict[str, str]:
    """Of all that runs: no network, no GPU, this Python and this truetune first, caches of its own."""
    tools = folder.parent / "bin"
    tools.mkdir(exist_ok=True)
    installed = Path(sys.executable).parent
    programs = [
        ("truetune", commands_python(), "-m truetune"),
        ("python", libraries_python(), ""),
        *((name, libraries_python(), f'"{installed / name}"') for name in LAUNCHERS),
    ]
    for name, python, program in programs:
        tool = tools / name
        if not tool.exists():
            tool.write_text(f'#!/bin/sh\nexec "{python}" {program} "$@"\n')
            tool.chmod(0o755)
    path = os.pathsep.join([str(tools), str(installed), os.environ["PATH"]])
    return {
        **{
            k: v
            for k, v in os.environ.items()
            if not k.startswith(("PYTEST_", "TRUETUNE_", "COV_"))
        },
        **{
            "PATH": path,
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
            "OMP_NUM_THREADS": "1",
            # torchrun starts its processes by it.
            "PYTHON_EXEC": libraries_python(),
        },
        **{
            "TRUETUNE_CACHE": str(folder.parent / "cache"),
            "HF_DATASETS_CACHE": str(folder.parent / "datasets"),
        },
        **{
            "HF_HUB_OFFLINE": "1",
            "CUDA_VISIBLE_DEVICES": "",
            "COLUMNS": "100",
            "WANDB_MODE": "offline",
        },
        **{"TOKENIZERS_PARALLELISM": "false", "ACCELERATE_USE_CPU": "true", "NO_COLOR": "1"},
    }


def _forked(target: Any, arguments: tuple[Any, ...], folder: Path) -> Ran:
    with tempfile.NamedTemporaryFile("r", errors="replace", suffix=".out") as out:
        child = _server().Process(
            target=_child, args=(target, arguments, str(folder), environment(folder), out.name)
        )
        child.start()
        child.join(LIMIT)
        if child.exitcode is None:
            child.kill()
            child.join()
            return Ran(-1, f"{out.read()}\n(ended after {LIMIT:g} s)")
        return Ran(child.exitcode, out.read())


@cache
def _server() -> Any:
    context = multiprocessing.get_context("forkserver")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    modules = [*HEAVY, *LIGHT_LIBRARIES, *modules_of_truetune(), "tests.preloaded.freeze"]
    context.set_forkserver_preload(["tests.docs.running", *modules])
    return context


def _child(
    target: Any, arguments: tuple[Any, ...], folder: str, env: Mapping[str, str], out: str
) -> None:
    with open(out, "wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    sys.stdout = open(1, "w", closefd=False, buffering=1, encoding="utf-8")  # noqa: SIM115
    sys.stderr = open(2, "w", closefd=False, buffering=1, encoding="utf-8")  # noqa: SIM115
    os.environ.clear()
    os.environ.update(env)
    os.chdir(folder)
    target(*arguments)


def _truetune(arguments: list[str]) -> None:
    from truetune.cli import main

    sys.argv = ["truetune", *arguments]
    main()


def _python(code: str, names: list[str], where: str) -> None:
    from tests.docs.preludes import NAMES

    space: dict[str, Any] = {"__name__": "__main__"}
    for name in names:
        space[name] = NAMES[name]()
    exec(compile(code, where, "exec"), space)
