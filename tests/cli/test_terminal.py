"""Colours and bars on a terminal alone, and not where NO_COLOR or TERM forbid them; --quiet says nothing more."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

import truetune
from tests.preloaded import commands_python
from truetune.cli import truetune_group
from truetune.demo import BROKEN, DATA, TOKENIZER

pty = pytest.importorskip("pty")
SOURCES = str(Path(truetune.__file__).parents[1])
COLOURS = ("NO_COLOR", "FORCE_COLOR", "TERM", "COLORTERM", "CI")
RED = "\x1b[1;31m"


def command(*arguments: object, **environment: str) -> tuple[list[str], dict[str, str]]:
    clean = {name: value for name, value in os.environ.items() if name not in COLOURS}
    line = [commands_python(), "-m", "truetune", *map(str, arguments)]
    return line, {**clean, "PYTHONPATH": SOURCES, "TERM": "xterm-256color", **environment}


def on_a_terminal(*arguments: object, **environment: str) -> str:
    """What stands on a terminal in the end: stdout and stderr."""
    line, variables = command(*arguments, **environment)
    main, other = pty.openpty()
    process = subprocess.Popen(
        line, stdout=other, stderr=other, stdin=other, env=variables, close_fds=True
    )
    os.close(other)
    parts = []
    while True:
        try:
            part = os.read(main, 65536)
        except OSError:
            break
        if not part:
            break
        parts.append(part)
    process.wait()
    os.close(main)
    return b"".join(parts).decode("utf-8", "replace")


def piped(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    line, variables = command(*arguments, **environment)
    return subprocess.run(line, capture_output=True, text=True, encoding="utf-8", env=variables)


def ran(*arguments: object) -> str:
    """What it prints, run in this process."""
    done = CliRunner().invoke(
        truetune_group, [str(argument) for argument in arguments], standalone_mode=False
    )
    assert (done.return_value, done.stderr) == (0, "")
    return done.stdout


CHECK = ("check", BROKEN, "-t", TOKENIZER, "--select", "LEN", "--no-progress")


def test_colours() -> None:
    assert RED in on_a_terminal(*CHECK)
    assert "\x1b" not in piped(*CHECK).stdout
    assert RED in piped(*CHECK, FORCE_COLOR="1").stdout
    for variables in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        shown = on_a_terminal(*CHECK, **variables)
        assert "error[LEN" in shown
        assert "\x1b[31" not in shown
        assert "\x1b[1;31" not in shown


def test_a_bar_is_no_part_of_a_pipe() -> None:
    done = piped("check", DATA, "-t", TOKENIZER)
    assert done.stderr == ""
    assert "checking" not in done.stdout


def test_quiet_is_quiet_on_a_terminal_too(tmp_path: Path) -> None:
    (tmp_path / "truetune.yaml").write_text(
        f"data: {DATA}\ntokenizer: {TOKENIZER}\nmax_length: 512\n"
    )
    assert on_a_terminal("check", tmp_path / "truetune.yaml", "-q") == ""
    assert on_a_terminal("plan", "nowhere", "-q").count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "schema"),
    [
        (("rules", "PREF"), "rules"),
        (("explain", "TOK001"), "rule"),
        (("show", DATA, "-t", TOKENIZER), "show"),
        (("check", DATA, "-t", TOKENIZER), "report"),
        (("encode", DATA, "-t", TOKENIZER, "--dry-run"), "estimate"),
        (("lint", Path(__file__)), "report"),
    ],
)
def test_json(arguments: tuple[object, ...], schema: str) -> None:
    short, long = (ran(*arguments, *form) for form in (("--json",), ("--format", "json")))
    value = json.loads(short)
    assert (value["schema"], value["truetune"]) == (f"truetune.{schema}/1", truetune.__version__)
    assert short.isascii()
    assert json.loads(long) == value | (
        {"seconds": json.loads(long)["seconds"]} if "seconds" in value else {}
    )


def test_json_by_a_file_s_name(tmp_path: Path) -> None:
    for name, key in (("r.json", "schema"), ("r.sarif", "$schema")):
        assert ran("check", DATA, "-t", TOKENIZER, "-o", tmp_path / name) == ""
        assert key in json.loads((tmp_path / name).read_text(encoding="utf-8"))
    both = CliRunner().invoke(truetune_group, ["lint", "--json", "--format", "sarif"])
    assert both.exit_code == 2
    assert "exclude each other" in both.output
