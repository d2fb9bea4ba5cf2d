"""`truetune train --launch N`: the line, the exit code, the signals, and one voice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.auditing import tiny
from tests.preloaded import libraries_python
from truetune.cli.train_command import train
from truetune.errors import UsageError
from truetune.settings.run_spec import RunSpec
from truetune.training import coordinate_processes_of_run
from truetune.training import launch_processes as launching
from truetune.training.coordinate_processes_of_run import (
    describe_idle_gpus,
    join_processes_of_launcher,
    settings_for_number_of_processes,
)
from truetune.training.launch_processes import build_launch_command, launch_processes
from truetune.training.trainer_arguments import make_trainer_arguments


def test_gpus_are_accelerates(tmp_path: Path) -> None:
    line = build_launch_command(2, None, ["train", "a.yaml"], gpus=2)
    assert line[:2] == ["accelerate", "launch"]
    assert line[-4:] == ["-m", "truetune", "train", "a.yaml"]
    assert "--multi_gpu" in line
    assert line[line.index("--num_processes") + 1] == "2"
    assert "--multi_gpu" not in build_launch_command(1, None, ["train"], gpus=2)
    config = tmp_path / "fsdp.yaml"
    config.touch()
    line = build_launch_command(8, str(config), ["train"], gpus=0)
    assert line[:6] == [
        "accelerate",
        "launch",
        "--config_file",
        str(config),
        "--num_processes",
        "8",
    ]


def test_cpus_are_torchruns() -> None:
    line = build_launch_command(2, None, ["train", "a.yaml"], gpus=0)
    assert line == [
        "torchrun",
        "--standalone",
        "--nproc_per_node",
        "2",
        "-m",
        "truetune",
        "train",
        "a.yaml",
    ]


@pytest.mark.parametrize(
    ("processes", "config", "gpus", "said"),
    [(3, None, 2, "there are 2 GPUs"), (2, "nothing.yaml", 2, "no such file")],
)
def test_what_can_not_be_launched(processes: int, config: str | None, gpus: int, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        build_launch_command(processes, config, ["train"], gpus=gpus)


def test_the_processes_get_the_same_options(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[list[str]] = []
    monkeypatch.setattr(launching, "_run_launcher_in_thread", lines.append)
    options = [
        "-o",
        "out",
        "--set",
        "training.lora.r=4",
        "--set",
        "seed=1",
        "--no-rehearsal",
        "--fit",
        "-q",
    ]
    done = CliRunner().invoke(train, ["a.yaml", *options, "--launch", "2"], standalone_mode=False)
    assert done.return_value == 0, done.output
    (line,) = lines
    assert line[line.index("truetune") + 1 :] == [
        "train",
        "a.yaml",
        "--output",
        "out",
        "--set",
        "training.lora.r=4",
        "--set",
        "seed=1",
        "--no-rehearsal",
        "--fit",
        "--quiet",
    ]
    assert " ".join(line) in done.output


def test_the_exit_code_comes_through() -> None:
    said: list[str] = []
    assert launch_processes(2, None, ["explain", "no-such-rule"], said.append) == 2
    assert len(said) == 1
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_file_of_accelerate_needs_processes() -> None:
    with pytest.raises(UsageError, match="add --launch N"):
        CliRunner().invoke(
            train,
            ["a.yaml", "--accelerate-config", "fsdp.yaml"],
            standalone_mode=False,
            catch_exceptions=False,
        )


def test_several_gpus_without_a_launcher_are_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert describe_idle_gpus() is None
    monkeypatch.setattr(coordinate_processes_of_run.torch.cuda, "device_count", lambda: 4)
    assert str(describe_idle_gpus()).endswith("--launch 4 uses all")
    from transformers import TrainingArguments

    monkeypatch.setattr(TrainingArguments, "n_gpu", 4)
    made = make_trainer_arguments(TrainingArguments, {"output_dir": str(tmp_path), "use_cpu": True})
    assert made._n_gpu == 1


def test_settings_know_the_processes_that_there_are() -> None:
    spec = RunSpec.model_validate({"training": {"devices": 4}, "trainer": {"seed": 1}})
    state = join_processes_of_launcher(spec)
    assert settings_for_number_of_processes(spec, state).training.devices == 1
    assert settings_for_number_of_processes(spec, state).trainer == {"seed": 1}
    with pytest.raises(UsageError, match="expected seconds"):
        join_processes_of_launcher(RunSpec(trainer={"ddp_timeout": "soon"}))


def test_a_run_of_two_processes_is_interrupted(tmp_path: Path) -> None:
    """One voice, one whole checkpoint, exit code 130."""
    tiny.model().save_pretrained(tmp_path / "model")
    tiny.tokenizer().save_pretrained(tmp_path / "model")
    (tmp_path / "rows.jsonl").write_text("\n".join(json.dumps(row) for row in tiny.chats(16)))
    settings = {
        "model": "model", "tokenizer": "model", "data": ["rows.jsonl"], "max_length": 128, "rehearsal": False,
        "watch": {"prompts": 0}, "ignore": ["stop-ids-incomplete"],
        "training": {"max_steps": 600, "save_steps": 600, "eval_strategy": "no", "val_size": 0},
    }  # fmt: skip
    (tmp_path / "truetune.yaml").write_text(json.dumps(settings))
    python = libraries_python()
    line = [
        python,
        "-m",
        "truetune",
        "train",
        "truetune.yaml",
        "-o",
        "out",
        "--launch",
        "2",
        "--force",
    ]
    run = subprocess.Popen(
        line,
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHON_EXEC": python},
    )
    said = []
    assert run.stderr is not None
    for text in run.stderr:
        said.append(text)
        if text.startswith("step "):
            run.send_signal(signal.SIGINT)
            break
    out, rest = run.communicate()
    assert run.returncode == 130, "".join(said) + rest
    assert sum(text.startswith("chosen: ") for text in said) == 1
    assert rest.count("stopping after this step") == 1
    assert out == ""
    (checkpoint,) = (tmp_path / "out").glob("checkpoint-*")
    assert (checkpoint / "whole.json").is_file()
    record = json.loads((tmp_path / "out" / "run.json").read_text())
    assert record["status"] == "interrupted"
    assert record["devices"]["processes"] == 2
