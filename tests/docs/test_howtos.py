"""The how-tos of the architecture page, followed word for word in a copy of the package, with nothing else edited."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import truetune
from tests.parts import folder, model

PAGE = Path(__file__).parents[2] / "docs" / "architecture.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.S | re.M)


def blocks_of(title: str) -> list[str]:
    """The code blocks of one how-to, in order."""
    text = PAGE.read_text(encoding="utf-8")
    start = text.index(f"## {title}\n")
    rest = text[start + 3 :]
    # Titles inside of the rule's page are no titles of this page; they stand in a block.
    section = re.split(r"^## (?=How to|Plug-ins|Rules of)", rest, flags=re.M)[0]
    return [block[1] for block in BLOCK.findall(section)]


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the package; its folder is on PYTHONPATH.

    With what Python has compiled: it stands for a module until that changes, and to compile all takes 2 s a command.
    """
    source = Path(truetune.__file__).parent
    shutil.copytree(source, tmp_path / "src" / "truetune")
    return tmp_path / "src" / "truetune"


def run(copy: Path, *arguments: str) -> str:
    """What the copied truetune prints; its errors are those of the test."""
    done = subprocess.run(
        [sys.executable, "-m", "truetune", *arguments],
        cwd=copy.parents[1],
        env={**os.environ, "PYTHONPATH": str(copy.parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    return done.stdout


def put_into(file: Path, above: str, text: str) -> None:
    """The text, above the last line of a table that begins so."""
    whole = file.read_text(encoding="utf-8")
    assert whole.count(above) == 1, (file, above)
    file.write_text(whole.replace(above, text + above), encoding="utf-8")


def write_rows(path: Path, rows: list[dict[str, object]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def test_a_rule(copy: Path) -> None:
    page, code = blocks_of("How to add a rule")[:2]
    for example in re.findall(r"\(a yaml block\)\n(.*?)\n\n", page, re.S):
        page = page.replace(f"(a yaml block)\n{example}", f"```yaml\n{example}\n```")
    rule = copy / "checks" / "rows" / "answer_repeats_the_prompt.py"
    rule.write_text(page + "\n" + code, encoding="utf-8")
    assert "Answers begin with their prompt" in run(copy, "explain", "answer-repeats-the-prompt")
    rows = copy.parents[1] / "rows.jsonl"
    turns = [
        {"role": "user", "content": "Is it open?"},
        {"role": "assistant", "content": "Is it open? Yes."},
    ]
    write_rows(rows, [{"messages": turns}])
    out = run(copy, "check", str(rows), "-t", str(folder("qwen3")), "--select", "ROW900")
    assert "1 answers begin with their prompt" in out


def test_a_format(copy: Path) -> None:
    line, reader = blocks_of("How to add a format")
    put_into(
        copy / "settings" / "row_formats.py",
        "    # Any of the others but the first, with a label.\n",
        line.partition("\n")[2],
    )
    put_into(
        copy / "data" / "row_format_readers.py",
        "def read_text(",
        reader.partition("\n")[2] + "\n\n",
    )
    rows = copy.parents[1] / "rows.jsonl"
    write_rows(rows, [{"turns": ["Is it open?", "Yes.", "Until when?", "Until four."]}])
    shown = json.loads(
        run(copy, "check", str(rows), "-t", str(folder("qwen3")), "--format", "json")
    )
    assert shown["formats"] == {"turns": 1}
    assert shown["ledger"]["stop"]["supervised"] == 2


def test_a_backend(copy: Path) -> None:
    (code,) = blocks_of("How to add a backend")
    backends = copy / "generation" / "backends"
    (backends / "parrot_backend.py").write_text(code, encoding="utf-8")
    put_into(
        backends / "open_backend.py",
        '    "server": "server_backend"',
        '    "parrot": "parrot_backend",\n',
    )
    rows = copy.parents[1] / "rows.jsonl"
    answers = {
        "Is it open on Mondays?": "Yes, it is open until four.",
        "When does it open?": "It opens at nine in the morning.",
        "May I come on Sunday?": "No, on Sundays it is closed.",
    }
    turns = [
        [{"role": "user", "content": asked}, {"role": "assistant", "content": answer}]
        for asked, answer in answers.items()
    ]
    write_rows(rows, [{"messages": turn} for turn in turns])
    out = run(copy, "sample", str(model()), "--data", str(rows), "--backend", "parrot", "-n", "3")
    assert "3 of 3" in out


def test_a_config_reader(copy: Path) -> None:
    entry, facts, reader = blocks_of("How to add a config reader")
    stacks = copy / "settings" / "stacks"
    (stacks / "nano.json").write_text(facts, encoding="utf-8")
    (stacks / "nano.py").write_text(reader, encoding="utf-8")
    registry = stacks / "registry.py"
    text = registry.read_text(encoding="utf-8")
    first_import = "from truetune.settings.stacks import (\n"
    assert first_import in text
    text = text.replace(first_import, f"{first_import}    nano,\n")
    registry.write_text(text, encoding="utf-8")
    put_into(registry, '    ConfigReader(\n        name="trl",', entry.partition("\n")[2])
    base = copy.parents[1]
    turns = [{"role": "user", "content": "Is it open?"}, {"role": "assistant", "content": "Yes."}]
    write_rows(base / "rows.jsonl", [{"messages": turns}] * 3)
    settings = base / "nano.yaml"
    settings.write_text(
        f"base: {folder('qwen3')}\nrows: rows.jsonl\nlr: 1.0e-4\nepoch: 1\n", encoding="utf-8"
    )
    out = run(copy, "check", str(settings))
    assert "epoch is not a setting of nano 1.0" in out
    assert "Nano drops it" in out
