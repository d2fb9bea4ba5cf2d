"""A program of a preloaded Python does what it does in an interpreter of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.preloaded import commands_python, libraries_python, modules_of_truetune

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="descriptors of processes (pidfd) are of Linux"
)
SCRIPT = """
import sys
import beside
print(sys.argv, __name__, __file__, sys.path[0], flush=True)
def fail():
    raise ValueError("of the script")
fail()
"""
LATE = """
import atexit, threading, time
atexit.register(print, "at exit")
threading.Thread(target=lambda: (time.sleep(0.2), print("of a thread"))).start()
left_open = open("left.txt", "w")
left_open.write("written at the end")
print("end of the code")
"""
POOL = """
import multiprocessing
if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.map(abs, [-1]))
"""
IMPORTS = """
import sys
def tell_loaded_modules():
    print(*sorted(name for name in sys.modules if name.partition(".")[0] in PACKAGES))
PACKAGES = ("transformers", "datasets", "peft", "trl")
class Told:
    def find_spec(self, name, path=None, target=None):
        if name in ("transformers", "transformers.trainer", "datasets", "peft.peft_model"):
            print(name, "is imported")
sys.meta_path.insert(0, Told())
tell_loaded_modules()
import transformers
tell_loaded_modules()
from transformers import AutoModelForCausalLM
tell_loaded_modules()
from transformers.trainer_utils import set_seed
tell_loaded_modules()
from trl import SFTTrainer
tell_loaded_modules()
import datasets
print(datasets.config.HF_DATASETS_CACHE, transformers.trainer.__spec__.loader.__class__)
print(datasets.utils.tqdm, datasets.io.parquet.hf_tqdm)
print("Trainer" in vars(transformers), SFTTrainer.__mro__[1].__name__, "BertModel" in vars(transformers))
"""
"""A program that says at each of its steps what it has loaded of the packages that hooks wait for"""
WAITING = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"


@pytest.mark.parametrize(
    "arguments",
    [
        ["-c", "print(1)"],
        ["-u", "-c", "import sys; print(sys.stdout.write_through)"],
        ["-c", "import sys; sys.exit(3)"],
        ["-c", "import sys; sys.exit('a reason')"],
        ["-c", "1 / 0"],
        ["-c", "def f(:"],
        ["-c", "raise KeyboardInterrupt"],
        ["-c", "import os; os._exit(7)"],
        ["-c", "import os; os.kill(os.getpid(), 9)"],
        ["-c", "import sys; print(sys.stdin.read())"],
        ["-c", "import sys; print(sys.path, sys.argv, sys.executable)", "more"],
        ["-c", LATE],
        ["-c", "import sitecustomize; print(sitecustomize.__file__)"],
        ["-c", "import os; print(os.environ['MARK'], os.getcwd(), os.environ['PYTHONPATH'])"],
        ["-W", "error", "-c", "import warnings; warnings.warn('x')"],
        ["script.py", "an argument"],
        ["pool.py"],
        ["-m", "script"],
        ["-m", "no_such_module"],
        ["no_such_file.py"],
    ],
    ids=lambda arguments: " ".join(arguments)[:30],
)
def test_it_ends_and_prints_as_python_does(arguments: list[str], tmp_path: Path) -> None:
    seen = []
    for name, python in (("real", sys.executable), ("preloaded", commands_python())):
        folder = tmp_path / name
        folder.mkdir()
        for file, text in (
            ("script", SCRIPT),
            ("pool", POOL),
            ("beside", ""),
            ("sitecustomize", ""),
        ):
            (folder / f"{file}.py").write_text(text)
        done = subprocess.run(
            [python, *arguments],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(folder), "MARK": "of the test"},
            input="a line",
            capture_output=True,
            text=True,
        )
        left = folder / "left.txt"
        written = left.read_text() if left.exists() else ""
        printed = [text.replace(str(folder), "HERE") for text in (done.stdout, done.stderr)]
        seen.append((done.returncode, *printed, written))
    assert seen[1] == seen[0]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_signal_reaches_the_program(number: signal.Signals) -> None:
    with subprocess.Popen(
        [commands_python(), "-c", WAITING],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        program = int(process.stdout.readline())
        process.send_signal(number)
        assert process.wait(30) == -number
    until = time.monotonic() + 30
    while Path(f"/proc/{program}").exists():
        assert time.monotonic() < until
        time.sleep(0.02)


def plain_environment() -> dict[str, str]:
    """What other tests may have set for interpreters, or for coverage, is left out."""
    return {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}


def test_modules_are_there_and_torch_is_not() -> None:
    code = "import sys; print(*(name in sys.modules for name in ('truetune.checks.lint', 'torch')))"
    done = subprocess.run(
        [commands_python(), "-c", code], capture_output=True, text=True, env=plain_environment()
    )
    assert done.stdout == "True False\n"


def test_packages_that_hooks_wait_for_are_imported_as_by_python(tmp_path: Path) -> None:
    """The server had imported them before. A real interpreter is what it is compared with, 6 s of processor time."""
    pytest.importorskip("trl")
    environment = {
        **os.environ,
        "HF_HUB_OFFLINE": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "HF_DATASETS_CACHE": str(tmp_path),
    }
    real, preloaded = (
        subprocess.run(
            [python, "-c", IMPORTS], capture_output=True, text=True, env=environment
        ).stdout.splitlines()
        for python in (sys.executable, libraries_python())
    )
    assert preloaded == real
    assert (preloaded[0], preloaded[1]) == ("", "transformers is imported")


@pytest.mark.parametrize("name", ["HF_HOME", "TRANSFORMERS_VERBOSITY"])
def test_other_variables_of_these_packages_get_a_real_interpreter(name: str) -> None:
    done = subprocess.run(
        [libraries_python(), "-c", "import sys; print('torch' in sys.modules)"],
        capture_output=True,
        text=True,
        env={**os.environ, "HF_HUB_OFFLINE": "1", name: "error"},
    )
    assert done.stdout == "False\n"


def test_what_counts_at_the_start_gets_a_real_interpreter() -> None:
    code = "import sys; print('numpy' in sys.modules, sys.flags.hash_randomization)"
    variables = {**os.environ, "PYTHONHASHSEED": "0"}
    done = subprocess.run(
        [commands_python(), "-c", code], capture_output=True, text=True, env=variables
    )
    assert done.stdout == "False 0\n"


def test_programs_draw_different_random_numbers() -> None:
    code = "import random, numpy; print(random.random(), numpy.random.random())"
    drawn = [
        subprocess.run([commands_python(), "-c", code], capture_output=True, text=True).stdout
        for _ in range(2)
    ]
    assert not set(drawn[0].split()) & set(drawn[1].split())


def test_modules_of_truetune_are_named() -> None:
    names = modules_of_truetune(("checks", "errors"))
    assert {"truetune.errors", "truetune.checks", "truetune.checks.lint"} <= set(names)
    assert not [name for name in modules_of_truetune() if "hooked" in name or "__main__" in name]
