"""`truetune run`: the command is untouched, whatever it is; what trains is audited."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.auditing.running import environment, plain, run, run_training

UNSEEN = "truetune: nothing was audited: "
NEVER = "import sys; print('out'); print('err', file=sys.stderr); sys.exit(7)"


def test_streams_and_exit_code_come_through() -> None:
    done = run("-c", NEVER, launcher=sys.executable)
    assert (done.returncode, done.stdout) == (7, "out\n")
    assert (
        done.stderr
        == f"err\n{UNSEEN}no transformers Trainer reached train() before the command ended with"
        " exit code 7\ntruetune: the command ended with exit code 7; it printed"
        " last:\ntruetune:   out\ntruetune:   err\n"
    )


def test_an_exception_comes_through() -> None:
    done, alone = run("-c", "raise KeyError('mine')"), plain("-c", "raise KeyError('mine')")
    assert done.returncode == alone.returncode == 1
    own, _, ours = done.stderr.partition(UNSEEN)
    assert own == alone.stderr
    assert (
        "run-ended-in-an-exception: the run ended in an exception (KeyError: 'mine')"
        in " ".join(ours.split())
    )


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("raise IndexError('index out of range in self')", "explain ids-beyond-the-embedding"),
        ("import os; os.kill(os.getpid(), 9)", "run-was-killed"),
        (
            (
                "import sys; sys.excepthook = lambda *_: None; raise OSError(28, 'No space left on"
                " device')"
            ),
            "explain disk-full",
        ),
        (
            "try:\n  {}['a']\nexcept KeyError as e:\n  raise RuntimeError('b') from e",
            "raised from <string>:2",
        ),
    ],
)
def test_what_ended_the_command_is_said(code: str, said: str) -> None:
    done, alone = run("-c", code), plain("-c", code)
    own, _, ours = done.stderr.partition(UNSEEN)
    assert own == alone.stderr
    assert said in " ".join(ours.split())
    assert done.returncode == (alone.returncode if alone.returncode > 0 else 128 - alone.returncode)


CAUGHT = {
    "printed": "except ValueError as error:\n  print('training failed:', error)\n  sys.exit(1)",
    "on stderr": "except ValueError as error:\n  sys.exit(f'training failed: {error}')",
    "logged": (
        "except ValueError as error:\n  logging.error('training failed: %s', error)\n  raise"
        " SystemExit(4)"
    ),
    "behind a progress bar": (
        "except ValueError as error:\n  sys.stderr.write('\\r 1/9\\r 9/9\\n')\n"
        "  print(f'training failed: {error}')\n  sys.exit(2)"
    ),
}


@pytest.mark.parametrize("way", CAUGHT)
def test_a_program_that_catches_its_exception_is_heard(way: str, tmp_path: Path) -> None:
    code = f"import logging, sys\ntry:\n  raise ValueError('no rows')\n{CAUGHT[way]}"
    report = tmp_path / "report.json"
    done, alone = (
        run("-c", code, options=["--format", "json", "-o", str(report)]),
        plain("-c", code),
    )
    assert done.returncode == alone.returncode != 0
    assert done.stdout == alone.stdout
    own, _, ours = done.stderr.partition(UNSEEN)
    assert own == alone.stderr
    assert "training failed: no rows" in ours
    assert " 1/9" not in ours
    said = json.loads(report.read_text())
    assert said["outcome"] == "not judged"
    assert "before a batch was seen" in json.dumps(said["not_judged"])


def test_a_traceback_that_the_program_prints_itself_is_read() -> None:
    code = (
        "import traceback, sys\ntry:\n  {}['chosen']\nexcept KeyError:\n "
        " traceback.print_exc()\nsys.exit(1)"
    )
    ours = run("-c", code).stderr.partition(UNSEEN)[2]
    assert "run-ended-in-an-exception" in ours
    assert "it printed last" not in ours


@pytest.mark.parametrize("code", ["import sys; sys.exit(3)", "raise KeyboardInterrupt", "print(1)"])
def test_an_end_that_is_no_fault_has_no_report(code: str) -> None:
    assert "[LOG" not in run("-c", code).stderr


def test_death_by_a_signal_is_told_as_shells_do() -> None:
    assert (
        run("-c", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)").returncode == 128 + 9
    )


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_are_passed_on(number: signal.Signals) -> None:
    code = (
        f"import signal, sys\nsignal.signal({int(number)}, lambda *_: sys.exit(5))\n"
        "print('ready', flush=True)\nsignal.pause()"
    )
    command = [sys.executable, "-m", "truetune", "run", "--", sys.executable, "-c", code]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment(),
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(number)
        assert process.wait(60) == 5


def test_a_command_that_is_none() -> None:
    done = run("no-such-command", python="")
    assert done.returncode == 2
    assert "no-such-command: can't be started" in done.stderr


def test_a_form_for_programs_needs_a_file() -> None:
    done = run("-c", "print('not run')", options=["--format", "json"])
    assert (done.returncode, done.stdout) == (2, "")


def test_paths_of_children_and_another_sitecustomize(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import builtins; builtins.custom = 'mine'")
    inner = "import sys; print(sys.path, custom, sys.modules['sitecustomize'].__file__)"
    outer = (
        "import subprocess, sys\nprint(sys.path, flush=True)\nsubprocess.run([sys.executable,"
        f" '-c', {inner!r}])"
    )
    paths = f"{tmp_path}:{environment()['PYTHONPATH']}"
    alone = plain("-c", outer, PYTHONPATH=paths)
    assert run("-c", outer, PYTHONPATH=paths).stdout == alone.stdout
    assert f"mine {tmp_path}" in alone.stdout


FAKE = (
    "import importlib.util as u; u.find_spec('transformers'); import transformers; print('on')\n"
    "u.find_spec('transformers.trainer'); import transformers.trainer"
)


@pytest.fixture
def fake(tmp_path: Path) -> Path:
    """A folder with another package of the name of transformers."""
    (tmp_path / "transformers").mkdir()
    (tmp_path / "transformers" / "__init__.py").touch()
    (tmp_path / "transformers" / "trainer.py").touch()
    return tmp_path


def test_a_hook_that_fails_is_one_line(fake: Path) -> None:
    done = run("-c", FAKE, PYTHONPATH=f"{fake}:{environment()['PYTHONPATH']}")
    assert (done.returncode, done.stdout) == (3, "on\n")
    assert done.stderr.startswith("truetune: not judged: AttributeError")
    assert len(done.stderr.splitlines()) == 1


def test_an_import_that_fails_shows_no_frame_of_ours(fake: Path) -> None:
    (fake / "transformers" / "trainer.py").write_text("raise ImportError('mine')")
    variables: dict[str, Any] = {"PYTHONPATH": f"{fake}:{environment()['PYTHONPATH']}"}
    done, alone = run("-c", FAKE, **variables), plain("-c", FAKE, **variables)
    assert done.returncode == alone.returncode == 1
    assert done.stderr.partition(UNSEEN)[0] == alone.stderr


def test_each_class_of_trainer_once(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "from tests.auditing import tiny\n"
        "for make in (tiny.sft, tiny.sft, tiny.dpo):\n"
        "    trainer = make(max_steps=1)\n"
        "    trainer.train()\n"
        "    print('trained', trainer.state.global_step)\n"
    )
    report = tmp_path / "report.json"
    done = run_training(
        str(script),
        options=["--on-error", "warn", "--laws", "none", "--format", "json", "-o", str(report)],
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("trained 1\n") == 3
    assert UNSEEN not in done.stderr
    first, second = (json.loads(path.read_text()) for path in (report, tmp_path / "report-2.json"))
    assert not (tmp_path / "report-3.json").exists()
    assert [made["subjects"][0]["path"].rpartition(".")[2] for made in (first, second)] == [
        "SFTTrainer",
        "DPOTrainer",
    ]
    assert "prompt-supervised" in {finding["rule"] for finding in first["findings"]}


def test_two_processes_are_judged_together_and_stopped(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "from tests.auditing import tiny\n"
        "trainer = tiny.sft(tiny.chats(16), max_steps=1)\n"
        "try:\n"
        "    trainer.train()\n"
        "except Exception as error:\n"
        "    print('caught', error)\n"
        "print('went on')\n"
    )
    done = run_training(
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc_per_node",
        "2",
        str(script),
        options=["--fail-on", "warning", "--batches", "2", "-v"],
    )
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.count("training run trl.trainer.sft_trainer.SFTTrainer") == 1
    assert "processes 2; batches 4 (8 lines)" in done.stderr.replace("\n", " ")


def test_processes_that_do_not_know_of_each_other(tmp_path: Path) -> None:
    """As torchrun starts them on a CPU, without use_cpu=True."""
    script = tmp_path / "train.py"
    script.write_text(
        "from tests.auditing import tiny\ntiny.sft(max_steps=1, use_cpu=False).train()\n"
    )
    variables = {"WORLD_SIZE": "2", "CUDA_VISIBLE_DEVICES": ""}
    done = run_training(str(script), options=["--on-error", "warn", "--laws", "none"], **variables)
    said = " ".join(done.stderr.split())
    assert (
        "note: 2 processes were launched (WORLD_SIZE), and this trainer takes itself for the"
        " only one" in said
    )
    assert "on a CPU, give it use_cpu=True" in said
