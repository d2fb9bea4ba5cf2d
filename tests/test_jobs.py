"""The job files of examples/jobs: training starts after a check that ended with exit code 0, and not otherwise.

Slurm is replaced by a small `sbatch` that runs each job at once: it copies the script into a spool folder, sets the
variables that Slurm sets, and keeps `afterok`. Ray runs on this machine. There is no Kubernetes here: the manifest
goes through the models of its Python client if that is installed, and its commands through truetune's own parser.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
import yaml

import truetune
from tests.preloaded import commands_python
from tests.test_dockerfile import instructions
from truetune.cli import truetune_group
from truetune.demo import DATA, TOKENIZER

JOBS = Path(__file__).parents[1] / "examples" / "jobs"
MANIFEST = JOBS / "kubernetes" / "job.yaml"
SBATCH = r"""
import os, re, subprocess, sys
from pathlib import Path

jobs = Path(os.environ["JOBS"])
*options, script = sys.argv[1:]
number = len(list(jobs.glob("*.code"))) + 1
after = [option.split(":")[1] for option in options if option.startswith("--dependency=afterok:")]
if all((jobs / f"{job}.code").read_text() == "0" for job in after):
    spooled = jobs / f"{number}.sh"
    spooled.write_text(Path(script).read_text())
    settings = dict(re.findall(r"^#SBATCH --([\w-]+)=(\S+)", spooled.read_text(), re.M))
    variables = {
        "SLURM_JOB_ID": str(number),
        "SLURM_JOB_NAME": settings["job-name"],
        "SLURM_CPUS_PER_TASK": settings["cpus-per-task"],
        "SLURM_SUBMIT_DIR": os.getcwd(),
    }
    log = settings["output"].replace("%x", settings["job-name"]).replace("%j", str(number))
    with open(log, "w") as output:
        done = subprocess.run(
            ["bash", spooled], cwd=jobs, env={**os.environ, **variables}, stdout=output, stderr=output
        )
    code = str(done.returncode)
else:
    code = "DependencyNeverSatisfied"
(jobs / f"{number}.code").write_text(code)
print(number)
"""
TRAIN = "from pathlib import Path\n\nPath('trained').touch()\n"


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on PATH with `truetune`, `python` and the `sbatch` of this test."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "sbatch.py").write_text(SBATCH)
    for name, command in (
        ("truetune", f"{commands_python()} -m truetune"),
        ("python", sys.executable),
        ("sbatch", f"{sys.executable} {folder / 'sbatch.py'}"),
    ):
        (folder / name).write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    sources = str(Path(truetune.__file__).parents[1])
    monkeypatch.setenv("PYTHONPATH", sources)
    return folder


def make_run(folder: Path, answers_are_empty: bool) -> Path:
    """Lay out the folder of a run.

    Args:
        folder: Where.
        answers_are_empty: The bug that the check finds.

    Returns:
        The folder, with a data set, a model's tokenizer and a script that only says that it ran.
    """
    folder.mkdir()
    rows = [json.loads(line) for line in DATA.read_text(encoding="utf-8").splitlines()[:12]]
    for row in rows if answers_are_empty else ():
        for message in row["messages"]:
            if message["role"] == "assistant":
                message["content"] = ""
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "chats.jsonl").write_text(lines, encoding="utf-8")
    shutil.copytree(TOKENIZER, folder / "model")
    (folder / "train.py").write_text(TRAIN, encoding="utf-8")
    return folder


def submit_to_slurm(run: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Copy the Slurm files into the folder of a run, and submit them as the page says.

    Args:
        run: The folder.
        monkeypatch: Tells the `sbatch` of this test where it keeps its jobs.

    Returns:
        The folder in which each job leaves its exit code, or why it was not started.
    """
    shutil.copytree(JOBS / "slurm", run, dirs_exist_ok=True)
    jobs = run.with_name("jobs")
    jobs.mkdir()
    monkeypatch.setenv("JOBS", str(jobs))
    done = subprocess.run(["sh", "submit.sh"], cwd=run, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "check: job 1, training: job 2\n"), done.stderr
    return jobs


@pytest.mark.parametrize("path", sorted(JOBS.glob("slurm/*")), ids=lambda path: path.name)
def test_scripts_are_bash(path: Path) -> None:
    done = subprocess.run(["bash", "-n", path], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("answers_are_empty", [False, True])
def test_slurm_trains_after_a_check_without_errors(
    answers_are_empty: bool, programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(tmp_path / "my run", answers_are_empty)
    (run / "chats.jsonl").rename(run / "my chats.jsonl")
    monkeypatch.setenv("DATA", "my chats.jsonl")
    jobs = submit_to_slurm(run, monkeypatch)
    log = (run / "truetune-check-1.log").read_text(encoding="utf-8")
    assert ("answer-is-empty" in log) == answers_are_empty, log
    assert (run / "trained").exists() != answers_are_empty
    # The script of the test has no trainer, so its audit ends with "nothing was judged".
    codes = [(jobs / f"{number}.code").read_text() for number in (1, 2)]
    assert codes == (["1", "DependencyNeverSatisfied"] if answers_are_empty else ["0", "3"])


def test_slurm_does_not_train_where_truetune_is_missing(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(tmp_path / "run", answers_are_empty=False)
    (programs / "truetune").unlink()
    monkeypatch.setenv("PATH", os.pathsep.join([str(programs), os.defpath]))
    jobs = submit_to_slurm(run, monkeypatch)
    assert "not found" in (run / "truetune-check-1.log").read_text(encoding="utf-8")
    codes = [(jobs / f"{number}.code").read_text() for number in (1, 2)]
    assert codes == ["127", "DependencyNeverSatisfied"]
    assert not (run / "trained").exists()


@pytest.mark.slow
@pytest.mark.parametrize("answers_are_empty", [False, True])
def test_ray_trains_after_a_check_without_errors(
    answers_are_empty: bool, programs: Path, tmp_path: Path
) -> None:
    pytest.importorskip("ray", reason="Ray is not installed: pip install truetune[ray]")
    run = make_run(tmp_path / "run", answers_are_empty)
    script = JOBS / "ray" / "check_then_train.py"
    variables = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    done = subprocess.run(
        [sys.executable, script, run], capture_output=True, text=True, env=variables, timeout=300
    )
    output = done.stdout + done.stderr
    assert ("answer-is-empty" in output) == answers_are_empty, output
    assert (run / "trained").exists() != answers_are_empty, output
    assert (run / "encoded" / "manifest.json").exists() != answers_are_empty, output
    assert done.returncode == (1 if answers_are_empty else 3), output


def test_kubernetes_checks_before_it_trains() -> None:
    job = yaml.safe_load(MANIFEST.read_text(encoding="utf-8"))
    assert (job["apiVersion"], job["kind"]) == ("batch/v1", "Job")
    assert job["spec"]["backoffLimit"] == 0
    pod = job["spec"]["template"]["spec"]
    assert pod["restartPolicy"] == "Never"
    (check,) = pod["initContainers"]
    (train,) = pod["containers"]
    mounted = {mount["name"] for part in (check, train) for mount in part["volumeMounts"]}
    assert mounted == {volume["name"] for volume in pod["volumes"]}
    # The image's entry point is truetune, so its arguments are those of truetune.
    assert instructions("ENTRYPOINT")[0].endswith('/truetune"]')
    for arguments in (check["args"], train["command"][1:]):
        name, *rest = arguments
        command = truetune_group.get_command(click.Context(truetune_group), name)
        assert command is not None
        command.make_context(name, rest, resilient_parsing=True)


def test_kubernetes_knows_every_field() -> None:
    client = pytest.importorskip(
        "kubernetes.client", reason="Kubernetes' Python client is not installed"
    )
    job = yaml.safe_load(MANIFEST.read_text(encoding="utf-8"))
    api = client.ApiClient()
    read = api.deserialize(json.dumps(job), "V1Job", "application/json")
    # A field that the API does not know is dropped when it is read.
    assert api.sanitize_for_serialization(read) == job


def test_the_page_names_every_file() -> None:
    page = (JOBS.parents[1] / "docs" / "howto" / "jobs.md").read_text(encoding="utf-8")
    files = [path for path in JOBS.rglob("*") if path.is_file()]
    named = set(re.findall(r"examples/jobs/([\w./-]+\.\w+)", page))
    assert named == {path.relative_to(JOBS).as_posix() for path in files}
