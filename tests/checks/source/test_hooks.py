"""The pre-commit hooks and the GitHub Action run what they say."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.checks.source.scripts import TWICE
from tests.preloaded import commands_python
from truetune.demo import TOKENIZER

ROOT = Path(__file__).parents[3]
CLEAN = "print('nothing to see')\n"
CLEAN_ROW = {"messages": [{"role": "user", "content": "2?"}, {"role": "assistant", "content": "3"}]}
EMPTY_ANSWER = {
    "messages": [{"role": "user", "content": "2?"}, {"role": "assistant", "content": ""}]
}
CONFIG = "base_model: m\nmicro_batch_size: 2\ndatasets: [{path: x/y, type: chat_template}]\n"
TRAINING_SCRIPT = TWICE.replace("MODEL", "'m'") + "n = len(t.apply_chat_template([]))\n"
CHECKED = {
    "truetune-check-data": (
        "chats.jsonl",
        json.dumps(CLEAN_ROW),
        json.dumps(EMPTY_ANSWER),
        "ROW067",
    ),
    "truetune-check-config": ("axolotl.yaml", CONFIG, CONFIG.replace("_size", "_sise"), "CFG001"),
}
"""Hook -> its file, clean and dirty text, and the code of what is wrong in the dirty one"""


@pytest.fixture
def command(tmp_path: Path) -> Path:
    """A folder with the command `truetune` in it, as an installation makes it."""
    folder = tmp_path / "truetune" / "bin"
    folder.mkdir(parents=True)
    script = folder / "truetune"
    script.write_text(
        f'#!/bin/sh\nPYTHONPATH="{ROOT / "src"}" exec "{commands_python()}" -m truetune "$@"\n'
    )
    script.chmod(0o755)
    return folder


def hooks() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    return found


@pytest.mark.parametrize("hook", hooks(), ids=lambda hook: hook["id"])
def test_a_hook_runs(hook: dict[str, Any], command: Path, tmp_path: Path) -> None:
    pytest.importorskip("pre_commit")
    if not shutil.which("git"):
        pytest.skip("no git")
    repository = tmp_path / "repository"
    repository.mkdir()
    environment = {
        **os.environ,
        "PATH": f"{command}{os.pathsep}{os.environ['PATH']}",
        "PRE_COMMIT_HOME": str(tmp_path / "cache"),
        "HOME": str(tmp_path),
        "COLUMNS": "200",
    }
    local = {**hook, "language": "system"}
    (repository / ".pre-commit-config.yaml").write_text(
        yaml.safe_dump({"repos": [{"repo": "local", "hooks": [local]}]})
    )
    (repository / "clean.py").write_text(CLEAN)
    (repository / "package.json").write_text('{"name": "no data"}')
    name, text, dirty_text, code = CHECKED.get(
        hook["id"], ("train.py", CLEAN, TRAINING_SCRIPT, "apply-chat-template-returns-dict")
    )
    (repository / name).write_text(text + "\n")

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words, cwd=repository, env=environment, capture_output=True, text=True, check=False
        )

    run("git", "init", "-q")
    run("git", "add", ".")
    pre_commit = (sys.executable, "-m", "pre_commit", "run", "--all-files", "--verbose")
    clean = run(*pre_commit)
    assert clean.returncode == 0, clean.stdout + clean.stderr
    (repository / name).write_text(dirty_text + "\n")
    run("git", "add", ".")
    dirty = run(*pre_commit)
    assert dirty.returncode == 1
    if "--fix" in hook["entry"]:
        assert "files were modified" in dirty.stdout
        run("git", "add", ".")
        assert run(*pre_commit).returncode == 0
    else:
        assert code in dirty.stdout


def test_hooks_are_valid() -> None:
    validate = pytest.importorskip("pre_commit.clientlib")
    validate.load_manifest(str(ROOT / ".pre-commit-hooks.yaml"))


def action() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text())
    return found


def test_the_action_is_whole() -> None:
    made = action()
    assert {"name", "description", "inputs", "runs"} <= made.keys()
    assert made["runs"]["using"] == "composite"
    given = set()
    for step in made["runs"]["steps"]:
        assert step["shell"] == "bash"
        assert "${{" not in step["run"], "an input inside a command would be run as code"
        given |= set(step["env"].values())
    wanted = {f"${{{{ inputs.{name} }}}}" for name in made["inputs"]}
    assert given == wanted | {"${{ github.action_path }}"}
    assert all("default" in entry and "description" in entry for entry in made["inputs"].values())


def run_step(step: dict[str, Any], work: Path, runner: Path, inputs: dict[str, str]) -> int:
    """The exit code of a step of the action, run in `work` with these inputs and else the defaults."""
    defaults = {name: entry["default"] for name, entry in action()["inputs"].items()}
    values = {f"${{{{ inputs.{name} }}}}": value for name, value in {**defaults, **inputs}.items()}
    environment = {**os.environ, "RUNNER_TEMP": str(runner)}
    environment |= {key: values[value] for key, value in step["env"].items()}
    done = subprocess.run(
        ["bash", "-e", "-c", step["run"]], cwd=work, env=environment, capture_output=True
    )
    return done.returncode


@pytest.mark.skipif(not shutil.which("bash"), reason="no bash")
def test_the_action_lints(command: Path, tmp_path: Path) -> None:
    step = action()["runs"]["steps"][1]
    work = tmp_path / "work"
    work.mkdir()
    lines = ("from transformers import AutoTokenizer", "t = AutoTokenizer.from_pretrained('x')")
    (work / "train.py").write_text("\n".join([*lines, "n = len(t.apply_chat_template([]))"]) + "\n")

    def run(**inputs: str) -> int:
        return run_step(step, work, tmp_path, inputs)

    assert run() == 1
    assert run(ignore="SRC010 source-not-parsed", sarif="found.sarif") == 0
    assert json.loads((work / "found.sarif").read_text())["runs"][0]["results"] == []
    assert run(paths="train.py", select="SRC010", sarif="found.sarif") == 1
    assert len(json.loads((work / "found.sarif").read_text())["runs"][0]["results"]) == 1
    assert run(paths="$(touch made) ; touch made") == 2
    assert not (work / "made").exists()


@pytest.mark.skipif(not shutil.which("bash"), reason="no bash")
def test_the_action_checks_data_and_configs(command: Path, tmp_path: Path) -> None:
    step = action()["runs"]["steps"][2]
    work = tmp_path / "work"
    (work / "data").mkdir(parents=True)
    (work / "data" / "a.jsonl").write_text(json.dumps(CLEAN_ROW) + "\n")

    def run(**inputs: str) -> int:
        return run_step(step, work, tmp_path, inputs)

    assert run(check="data/*.jsonl", tokenizer=str(TOKENIZER)) == 0
    (work / "data" / "b.jsonl").write_text(json.dumps(EMPTY_ANSWER) + "\n")
    assert run(check="data/*.jsonl", **{"check-sarif": "found.sarif"}) == 1
    (result,) = json.loads((work / "found.sarif").read_text())["runs"][0]["results"]
    assert result["ruleId"] == "ROW067"
    assert run(check="data/*.jsonl", ignore="ROW067") == 0
    (work / "axolotl.yaml").write_text(CONFIG.replace("_size", "_sise"))
    assert run(check="axolotl.yaml", **{"fail-on": "warning"}) == 1
    assert run(check="$(touch made) ; touch made") == 2
    assert not (work / "made").exists()
