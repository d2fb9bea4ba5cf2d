"""Interpreters for tests that start the same libraries again and again: `python` with its imports already done.

Importing torch, transformers and trl takes 6 to 8 s of processor time, and the tests start more than a hundred programs
that do. `libraries_python` and `commands_python` give the path of a program that is called as `python` is. It hands its
arguments, folder, environment and streams to a server (`serve.py`), which has imported the libraries once, and which
runs the program in a fork of its own. Each program still has a process, `sys.modules['__main__']`, a `sitecustomize`
and an end (threads, `atexit`, exit code) of its own.

What truetune's hooks wait for is not among LIBRARIES: each program imports transformers, trl, peft and datasets itself.
The server has done the work, so these imports are quick, and the program does not see that (`replayed_imports.py`).

Trade-off: all is imported before the environment of the program is known. So a program whose environment must count at
the start (PYTHONHASHSEED, coverage, the guard of a rehearsal, other HF_ or TRANSFORMERS_ variables than the server's)
gets a real interpreter, as does whatever `ask.py` does not know how to hand on.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from pathlib import Path

from tests.test_imports import LIGHT

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "truetune"
ASK = Path(__file__).with_name("ask.py")
SERVE = Path(__file__).with_name("serve.py")
LIBRARIES = (
    "torch", "torch._dynamo", "torch.distributed.tensor", "torch.distributed.fsdp", "numpy.ma", "pandas",
    "pyarrow.parquet", "accelerate", "wandb", "fsspec", "huggingface_hub", "tokenizers", "safetensors.torch", "psutil",
    "yaml", "multiprocess", "dill", "rich", "pydantic", "httpx", "regex", "PIL.Image", "jinja2", "sentencepiece",
)  # fmt: skip
"""What the trainers import, without the packages that truetune's hooks wait for."""
WAITED_FOR = (
    "transformers", "transformers.trainer", "transformers.models.auto.modeling_auto",
    "transformers.models.llama.modeling_llama", "peft", "datasets", "trl.trainer.sft_trainer",
)  # fmt: skip
"""What truetune's hooks wait for, and trainers: each program imports them again, as if for the first time"""
READ_AT_IMPORT = ("HF_", "TRANSFORMERS_", "TRL_", "USE_", "XLA_")
"""Beginnings of the variables that these packages read when they are imported"""
LIGHT_LIBRARIES = (
    "numpy.ma", "pyarrow.parquet", "pyarrow.compute", "py3langid.langid", "loky", "tokenizers", "rich.progress",
    "jinja2",
)  # fmt: skip
"""What commands import that need no torch."""


def libraries_python() -> str:
    """Give the path of a Python that has imported LIBRARIES, and WAITED_FOR. Its server starts at the first call."""
    return _start_server(LIBRARIES, WAITED_FOR)


def commands_python() -> str:
    """Give the path of a Python that has imported truetune's light modules. Its server starts at the first call."""
    return _start_server((*LIGHT_LIBRARIES, *modules_of_truetune(LIGHT)))


def modules_of_truetune(layers: Collection[str] | None = None) -> tuple[str, ...]:
    """Name the modules of truetune.

    Args:
        layers: Names of packages or modules at the top of truetune; by default all.

    Returns:
        Dotted names, without programs that act when they are imported.
    """
    names = []
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        if parts[-1] == "__main__" or "hooked" in parts:
            continue
        if layers is None or parts[1] in layers:
            names.append(".".join(parts).removesuffix(".__init__"))
    return tuple(names)


def read_at_import(environment: Mapping[str, str]) -> dict[str, str]:
    """Choose the variables that packages of WAITED_FOR read at their import; each program reads those of datasets."""
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(READ_AT_IMPORT) and not name.startswith("HF_DATASETS_")
    }


@cache
def _start_server(modules: Sequence[str], replayed: Sequence[str] = ()) -> str:
    if not sys.platform.startswith("linux"):  # elsewhere a process has no descriptor
        return sys.executable
    folder = Path(tempfile.mkdtemp(prefix="python-"))
    socket = folder / "socket"
    environment = {
        **{
            name: value
            for name, value in os.environ.items()
            if not name.startswith("PYTEST_") and name != "PYTHONPATH"
        },
        "OMP_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",
        "CUDA_VISIBLE_DEVICES": "",
    }
    if replayed:
        # `ask.py` compares them with the program's own.
        variables = {"prefixes": READ_AT_IMPORT, "values": read_at_import(environment)}
        folder.joinpath("variables.json").write_text(json.dumps(variables), encoding="utf-8")
    # It ends, and removes the folder, when this process does: the other end of its input is closed then.
    server = subprocess.Popen(
        [sys.executable, str(SERVE), str(socket), str(PACKAGE.parent), *modules, "--", *replayed],
        env=environment,
        cwd="/",
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdout is not None
    if server.stdout.readline() != "listening\n":
        raise RuntimeError("the server of a preloaded Python did not start")
    program = folder / "python"
    words = [sys.executable, "-I", "-S", str(ASK), str(socket), sys.executable]
    program.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    return str(program)
