"""The command line, end to end."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import truetune as package
from tests.cli_page import PAGE, page
from tests.preloaded import commands_python
from truetune.demo import BROKEN, DATA, TOKENIZER

SOURCES = Path(package.__file__).parents[1]


def truetune(
    *arguments: object, cwd: Path | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    settings = {"COLUMNS": "80", "NO_COLOR": "1", "PYTHONPATH": str(SOURCES), **environment}
    return subprocess.run(
        [commands_python(), "-m", "truetune", *map(str, arguments)],
        capture_output=True, text=True, encoding="utf-8", cwd=cwd, env={**os.environ, **settings},
    )  # fmt: skip


def test_the_version_has_a_short_option() -> None:
    done = truetune("-V")
    assert (done.returncode, done.stdout) == (0, f"truetune, version {package.__version__}\n")


@pytest.mark.parametrize("place", ["before", "after"])
def test_no_color_beside_forced_colours(place: str) -> None:
    command = ["check", BROKEN, "-t", TOKENIZER, "--max-length", 512]
    coloured = truetune(*command, NO_COLOR="", FORCE_COLOR="1")
    arguments = ["--no-color", *command] if place == "before" else [*command, "--no-color"]
    plain = truetune(*arguments, NO_COLOR="", FORCE_COLOR="1")
    assert "\x1b[3" in coloured.stdout
    assert "\x1b[3" not in plain.stdout
    assert plain.returncode == coloured.returncode == 1


def test_a_run_without_findings() -> None:
    done = truetune("check", DATA, "-t", TOKENIZER, "--max-length", 512)
    assert (done.returncode, done.stderr) == (0, "")
    counts = (
        r" no findings, \d+ checks examined and fine, \d+ not judged, \d+ about other things"
        r" \(-v lists them\) · 200 rows in"
    )
    assert re.search(counts, " ".join(done.stdout.split()))
    assert "warning" not in done.stdout
    assert "\x1b" not in done.stdout


def test_findings_and_severities() -> None:
    broken = ("check", BROKEN, "-t", TOKENIZER, "-q")
    assert truetune(*broken).returncode == 1
    assert truetune(*broken, "--select", "duplicate-rows").returncode == 0
    assert truetune(*broken, "--select", "duplicate-rows", "--fail-on", "warning").returncode == 1
    without_rules = truetune(*broken, "--select", "ROW", "--ignore", "ROW")
    assert without_rules.returncode == 3
    assert without_rules.stdout == "not judged: there was nothing to judge\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["check"], "nothing is named"),
        (["encode", "-t", TOKENIZER], "no data is named"),
        (["check", "nowhere.jsonl", "-t", TOKENIZER], "nowhere.jsonl: no such file"),
        (["check", DATA, "-t", "nowhere"], "nowhere: no such folder"),
        (
            ["check", DATA, "-t", TOKENIZER, "--select", "pad-is-stop-tokn"],
            "did you mean 'pad-is-stop-token'?",
        ),
        (["check", DATA, "-t", TOKENIZER, "--template", "rag"], "no template of"),
        (["check", DATA, "-t", TOKENIZER, "--max-length", "0"], "0 is not in the range x>=1"),
        (
            ["check", DATA, "-t", TOKENIZER, "--data-format", "chatml"],
            "'chatml' is not one of 'preference', 'messages', 'sharegpt'",
        ),
        (
            ["check", DATA, "-t", TOKENIZER, "--template-kwarg", "enable_thinking=False"],
            "true, false or null",
        ),
        (["check", DATA, "-t", "\x1b[31mred"], "\\x1b[31mred: no such folder"),
        (
            ["check", DATA, "-t", TOKENIZER, "--config", "nowhere.yaml"],
            "nowhere.yaml: No such file",
        ),
        (["check", "--foo"], "No such option"),
        (["check", DATA, "-t", TOKENIZER, "--map", "answer"], "expected NAME=VALUE"),
        (["show", DATA, "-t", TOKENIZER, "--row", "100000"], "rows are numbered from 0 to 199"),
        (["diagnose", "run", "--data", DATA], "--data needs the run's tokenizer"),
        (["explain", "TT000"], "no rule is called 'TT000'"),
        (["chek"], "Did you mean 'check'?"),
        (["check", DATA, "-t", TOKENIZER, "--html", "/nowhere/page.html"], "can't be written"),
    ],
)
def test_usage_and_input_errors(arguments: list[object], message: str) -> None:
    done = truetune(*arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.startswith("truetune: error: ")
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


def test_debug_shows_the_traceback() -> None:
    done = truetune("check", "nowhere.jsonl", "-t", TOKENIZER, TRUETUNE_DEBUG="1")
    assert done.returncode == 2
    assert "Traceback" in done.stderr
    assert "truetune: error: nowhere.jsonl: no such file" in done.stderr


def test_options_go_before_the_settings_file(tmp_path: Path) -> None:
    told = list[str]()

    def spec(*options: str) -> dict[str, Any]:
        done = truetune("check", "--format", "json", *options, cwd=tmp_path)
        told.append(done.stderr)
        return dict(json.loads(done.stdout)["spec"])

    (tmp_path / "chats.jsonl").write_text('{"q": "Is it open?", "a": "Yes.", "b": "No."}\n')
    (tmp_path / "truetune.yaml").write_text(
        f"data: chats.jsonl\ntokenizer: {TOKENIZER}\nlearn: {{what: last, tool-calls:"
        " false}\nmax-length: 512\nmap: {prompt: q, completion: a}\ntemplate_kwargs: {a: 1, b:"
        " 1}\nselect: LEN\nfail-on: info\n"
    )
    given = spec()
    assert (given["data"], given["learn"]["what"], given["max_length"]) == (
        ["chats.jsonl"],
        "last",
        512,
    )
    over = spec(
        "--learn",
        "all",
        "--no-reasoning",
        "--max-length",
        "99",
        "--template-kwarg",
        "b=[2]",
        "--ignore",
        "TOK001",
        "--select",
        "TOK",
        "--map",
        "completion=b",
        "--fail-on",
        "error",
        "--append-eos",
    )
    assert over["learn"] == {"what": "all", "reasoning": False, "tool_calls": False}
    assert over["map"] == {"prompt": "q", "completion": "b"}
    assert over["template_kwargs"] == {"a": 1, "b": [2]}
    assert (over["max_length"], over["select"], over["ignore"]) == (99, ["TOK"], ["TOK001"])
    assert (over["fail_on"], over["append_eos"]) == ("error", True)
    told = [re.sub(r"tokenizer( /\S+)?, ", "", line) for line in told]
    assert (
        told[0] == "settings from truetune.yaml: data chats.jsonl, learn, max_length 512, map,"
        " template_kwargs, select LEN, fail_on info\n"
    )
    assert told[1] == "settings from truetune.yaml: data chats.jsonl, learn, map, template_kwargs\n"
    assert "data" not in truetune("check", "chats.jsonl", cwd=tmp_path).stderr
    over = spec(
        "--learn", "all", "--no-tool-calls", "--template-kwarg", "a=2", "--template-kwarg", "b=3"
    )
    assert (over["learn"]["what"], over["template_kwargs"]) == ("all", {"a": 2, "b": 3})
    assert re.search("learn|kwargs", told[-1]) is None, "each is given by the command line"
    wrong = truetune("check", "--config", "chats.jsonl", cwd=tmp_path)
    assert wrong.returncode == 2
    assert wrong.stderr.startswith("truetune: error: chats.jsonl: ")


def test_settings_from_pyproject(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        f'[tool.truetune]\ndata = "{DATA}"\ntokenizer = "{TOKENIZER}"\n'
    )
    done = truetune("check", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stderr.startswith("settings from pyproject.toml: data")
    assert truetune("check", "--quiet", cwd=tmp_path).stderr == ""


def test_output_files(tmp_path: Path) -> None:
    done = truetune(
        "check",
        BROKEN,
        "-t",
        TOKENIZER,
        "--format",
        "sarif",
        "-o",
        "r.sarif",
        "--html",
        "r.html",
        cwd=tmp_path,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert json.loads((tmp_path / "r.sarif").read_text())["version"] == "2.1.0"
    assert (tmp_path / "r.html").read_text().startswith("<!doctype html>")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r.html", "r.sarif"]
    same = truetune("check", BROKEN, "-t", TOKENIZER, "-q", "-o", "r.txt", cwd=tmp_path)
    assert (same.returncode, same.stdout) == (1, "")
    assert (tmp_path / "r.txt").read_text(encoding="utf-8").startswith("error[")


def test_an_output_that_can_not_be_written_is_said_before_the_work(tmp_path: Path) -> None:
    done = truetune(
        "check", "nowhere.jsonl", "-t", TOKENIZER, "--html", "nowhere/r.html", cwd=tmp_path
    )
    assert "nowhere/r.html: can't be written: there is no folder" in done.stderr
    done = truetune("check", DATA, "-t", TOKENIZER, "-q", "-o", tmp_path)
    assert (done.returncode, list(tmp_path.iterdir())) == (2, [])
    assert "can't be written: it is a folder" in done.stderr


@pytest.mark.skipif(os.name == "nt", reason="pipes and signals of POSIX")
def test_a_reader_that_goes_and_a_device() -> None:
    read, write = os.pipe()
    os.close(read)
    for output in ("terminal", "json"):
        done = subprocess.run(
            [sys.executable, "-m", "truetune", "check", BROKEN, "-t", TOKENIZER, "--format", output],
            stdout=write, stderr=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(SOURCES)},
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (141, b"")
    os.close(write)
    assert truetune("check", DATA, "-t", TOKENIZER, "-q", "-o", "/dev/null").returncode == 0
    assert Path("/dev/null").is_char_device()


def test_an_interrupt() -> None:
    code = (
        "import signal, sys\nimport truetune.checks.check_data as run\nfrom truetune.cli import main\n"
        "run.check = lambda *_, **__: signal.raise_signal(signal.SIGINT)\n"
        f"sys.argv = ['truetune', 'check', {str(DATA)!r}, '-t', 'x']\nmain()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr.strip()) == (130, "", "")


def test_output_in_another_encoding() -> None:
    done = truetune("check", BROKEN, "-t", TOKENIZER, "-v", PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (1, "")
    assert "  0 to  99 ####" in done.stdout


def test_show_rules_and_explain() -> None:
    shown = truetune("show", DATA, "-t", TOKENIZER, "--row", 3, "--ids")
    assert shown.returncode == 0
    assert "[<|im_end|>/3]" in shown.stdout
    assert "stop token" in shown.stdout
    assert "pad-is-stop-token" in truetune("rules").stdout
    assert "Why it is bad" in truetune("explain", "TOK001").stdout
    assert truetune("explain", "pad-is-stop-token").stdout == truetune("explain", "TOK001").stdout


def test_truetune_alone_shows_its_help() -> None:
    done = truetune()
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == truetune("--help").stdout


def test_show_takes_the_place_that_a_finding_names() -> None:
    by_row = truetune("show", BROKEN, "-t", TOKENIZER, "--row", 45)
    by_place = truetune("show", f"{BROKEN}:46", "-t", TOKENIZER)
    assert by_place.returncode == 0
    assert by_place.stdout == by_row.stdout
    missing = truetune("show", f"{BROKEN}:99999", "-t", TOKENIZER)
    assert missing.returncode == 2
    assert "no row begins at line 99999" in missing.stderr


def test_every_option_stands_in_the_docs() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run python -m tests.cli_page"


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys\nfrom truetune.cli import truetune_group\ntry: truetune_group.main(['--help'])\nexcept"
        " SystemExit: pass\nprint([m for m in ('numpy', 'rich', 'tokenizers', 'pydantic', 'jinja2',"
        " 'pyarrow') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_encode(tmp_path: Path) -> None:
    first = truetune(
        "encode",
        DATA,
        "-t",
        TOKENIZER,
        "-o",
        tmp_path / "out",
        "--max-length",
        512,
        "--packing",
        "best-fit",
    )
    assert (first.returncode, first.stderr) == (0, "")
    assert "200 rows encoded in " in first.stdout
    assert "% full" in first.stdout
    assert "stop token" in first.stdout
    again = truetune(
        "encode",
        DATA,
        "-t",
        TOKENIZER,
        "-o",
        tmp_path / "out",
        "--max-length",
        512,
        "--packing",
        "best-fit",
    )
    assert "200 rows found again, every byte as written and rows encoded alike" in again.stdout
    quiet = truetune("encode", DATA, "-t", TOKENIZER, "-q", TRUETUNE_CACHE=str(tmp_path / "cache"))
    (folder,) = (tmp_path / "cache" / "encoded").iterdir()
    assert quiet.stdout.strip() == str(folder)
    assert (folder / "manifest.json").is_file()


def test_encode_by_a_settings_file(tmp_path: Path) -> None:
    settings = (
        f"data: {DATA}\ntokenizer: {TOKENIZER}\nmax_length: 512\nencode: {{packing: best-fit,"
        " file-format: arrow}\n"
    )
    (tmp_path / "run.yaml").write_text(settings)
    done = truetune("encode", "run.yaml", "-o", "out", "--packing", "none", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["inputs"]["settings"]["encode"]["packing"] == "none"
    assert manifest["shards"][0]["file"] == "data-00000-of-00001.arrow"
    (tmp_path / "run.yaml").write_text(settings.replace("packing", "pakcing"))
    wrong = truetune("encode", "run.yaml", "-o", "out", cwd=tmp_path)
    assert wrong.returncode == 2
    assert "there is no setting encode.pakcing; did you mean packing?" in wrong.stderr


def test_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    done = truetune("encode", DATA, "-t", TOKENIZER, "-o", tmp_path / "out", "--dry-run")
    assert done.returncode == 0
    assert "of the first 200 rows: 200 examples" in done.stdout
    assert "stop token" in done.stdout
    assert not (tmp_path / "out").exists()


def test_encode_says_what_is_wrong(tmp_path: Path) -> None:
    done = truetune("encode", BROKEN, "-t", TOKENIZER, "-o", tmp_path / "out")
    assert done.returncode == 2
    assert done.stderr.startswith("truetune: error: ")
    assert done.stderr.count("\n") == 1
    skipped = truetune(
        "encode", BROKEN, "-t", TOKENIZER, "-o", tmp_path / "out", "--on-error", "skip"
    )
    assert skipped.returncode == 0
    assert "rows that could not be encoded: " in skipped.stdout
