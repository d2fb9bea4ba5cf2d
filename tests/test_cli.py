"""The command line, end to end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli_page import PAGE, page
from truetune.demo import BROKEN, DATA, TOKENIZER


def truetune(*arguments: object, cwd: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "truetune", *map(str, arguments)],
        capture_output=True, text=True, cwd=cwd, env={**os.environ, "COLUMNS": "80", "NO_COLOR": "1", **environment},
    )  # fmt: skip


def test_a_clean_run() -> None:
    done = truetune("check", DATA, "-t", TOKENIZER, "--max-length", 512)
    assert (done.returncode, done.stderr) == (0, "")
    assert "clean · 200 rows" in done.stdout
    assert "warning" not in done.stdout
    assert "\x1b" not in done.stdout


def test_findings_and_severities() -> None:
    broken = ("check", BROKEN, "-t", TOKENIZER, "-q")
    assert truetune(*broken).returncode == 1
    assert truetune(*broken, "--select", "duplicate-rows").returncode == 0
    assert truetune(*broken, "--select", "duplicate-rows", "--fail-on", "warning").returncode == 1
    assert truetune(*broken, "--select", "TT3", "--ignore", "TT3").stdout == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["check", DATA], "no tokenizer is named"),
        (["check", "-t", TOKENIZER], "no data is named"),
        (["check", "nowhere.jsonl", "-t", TOKENIZER], "nowhere.jsonl: no such file"),
        (["check", DATA, "-t", "nowhere"], "nowhere: no such folder"),
        (["check", DATA, "-t", TOKENIZER, "--select", "pad-is-stop-tokn"], "did you mean 'pad-is-stop-token'?"),
        (["check", DATA, "-t", TOKENIZER, "--template", "rag"], "no template of"),
        (["check", DATA, "-t", TOKENIZER, "--max-length", "-3"], "max_length"),
        (["check", DATA, "-t", TOKENIZER, "--map", "answer"], "expected NAME=VALUE"),
        (["show", DATA, "-t", TOKENIZER, "--row", "100000"], "rows are numbered from 0 to 199"),
        (["explain", "TT999"], "no rule is called 'TT999'"),
        (["chek"], "No such command"),
        (["check", DATA, "-t", TOKENIZER, "--html", "/nowhere/page.html"], "can't be written"),
    ],
)
def test_usage_and_input_errors(arguments: list[object], message: str) -> None:
    done = truetune(*arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_settings_files(tmp_path: Path) -> None:
    (tmp_path / "truetune.yaml").write_text(f"data: {DATA}\ntokenizer: {TOKENIZER}\nlearn: last\nmax-length: 512\n")
    done = truetune("check", "--format", "json", cwd=tmp_path)
    report = json.loads(done.stdout)
    assert done.stderr.strip() == "settings from " + str(tmp_path.resolve() / "truetune.yaml")
    assert (report["spec"]["learn"]["what"], report["spec"]["max_length"]) == ("last", 512)
    over = json.loads(truetune("check", "--format", "json", "--learn", "all", "--quiet", cwd=tmp_path).stdout)
    assert over["spec"]["learn"]["what"] == "all"
    (tmp_path / "truetune.yaml").write_text("tokeniser: x\n")
    wrong = truetune("check", cwd=tmp_path)
    assert wrong.returncode == 2
    assert "there is no setting tokeniser; did you mean tokenizer?" in wrong.stderr
    (tmp_path / "truetune.yaml").unlink()
    (tmp_path / "pyproject.toml").write_text(f'[tool.truetune]\ndata = "{DATA}"\ntokenizer = "{TOKENIZER}"\n')
    assert truetune("check", "--quiet", cwd=tmp_path).returncode == 0


def test_output_files(tmp_path: Path) -> None:
    done = truetune(
        "check", BROKEN, "-t", TOKENIZER, "--format", "sarif", "-o", "r.sarif", "--html", "r.html", cwd=tmp_path
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert json.loads((tmp_path / "r.sarif").read_text())["version"] == "2.1.0"
    assert (tmp_path / "r.html").read_text().startswith("<!doctype html>")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r.html", "r.sarif"]


def test_show_rules_and_explain() -> None:
    shown = truetune("show", DATA, "-t", TOKENIZER, "--row", 3, "--ids")
    assert shown.returncode == 0
    assert "[<|im_end|>/3]" in shown.stdout
    assert "stop token" in shown.stdout
    assert "pad-is-stop-token" in truetune("rules").stdout
    assert "Why it is bad" in truetune("explain", "TT101").stdout
    assert truetune("explain", "pad-is-stop-token").stdout == truetune("explain", "TT101").stdout


def test_every_option_stands_in_the_docs() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run python -m tests.cli_page"


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys\nfrom truetune.cli import commands\n"
        "try: commands.main(['--help'])\nexcept SystemExit: pass\n"
        "print([m for m in ('numpy', 'rich', 'tokenizers', 'pydantic', 'jinja2', 'pyarrow') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
