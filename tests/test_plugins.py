"""Plug-ins: a package that is installed beside truetune adds a rule, a format and a config reader."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.parts import folder
from tests.preloaded import commands_python

RULE = '''"""Answers end with an exclamation mark.

## What it does
Looks at the last character of each answer.
"""

from truetune.checks.findings import Case
from truetune.checks.rule import DataRule


class ShoutingAnswer(DataRule):
    code = "NANO1"
    severity = "warning"

    def __init__(self, setup):
        super().__init__(setup)
        self.cases = []

    def add_batch(self, batch):
        for row in batch.rows:
            if row.messages and str(row.messages[-1].get("content")).endswith("!"):
                self.cases.append(Case("it shouts", row.origin))

    def findings(self):
        if self.cases:
            yield self.finding(f"{len(self.cases)} answers shout", "write a full stop", cases=self.cases)
'''
FORMAT = """from truetune.settings.row_formats import RowFormat


def read(draft):
    texts = draft.list_or_object_of_column("turns", list) or ()
    roles = ("user", "assistant")
    return draft.make_conversation([{"role": roles[n % 2], "content": text} for n, text in enumerate(texts)])


TURNS = RowFormat("turns", ("turns",), read)
"""
READER = """from truetune.settings.stacks.config_draft import draft_of_document
from truetune.settings.stacks.registry import ConfigReader

DEFAULTS = {"base": None, "rows": None, "lr": 0.0001, "block": 1024}


def keys():
    return frozenset(DEFAULTS)


def read(document):
    draft = draft_of_document(document, "nano", "1.0", DEFAULTS)
    for field in ("model", "tokenizer"):
        draft.take(field, "base", made=draft.local_folder_or_name)
    draft.take("data", "rows", made=lambda name: [str(draft.find(name) or name)])
    draft.take("training.learning_rate", "lr")
    return draft.make_config(keys(), draft.take("max_length", "block"), ())


NANO = ConfigReader(
    name="nano",
    title="Nano configuration",
    read=read,
    keys=keys,
    model_key="base",
    unknown_key="Nano drops it",
)
"""
ENTRY_POINTS = """[truetune.rules]
house-style = nano_truetune.rules

[truetune.formats]
turns = nano_truetune.formats:TURNS

[truetune.config_readers]
nano = nano_truetune.settings:NANO
"""


@pytest.fixture
def plugins(tmp_path: Path) -> Path:
    """A folder for PYTHONPATH with an installed package."""
    site = tmp_path / "site"
    package = site / "nano_truetune"
    rules = package / "rules"
    rules.mkdir(parents=True)
    (package / "__init__.py").write_text("", encoding="utf-8")
    (rules / "__init__.py").write_text("", encoding="utf-8")
    (rules / "shouting_answer.py").write_text(RULE, encoding="utf-8")
    (package / "formats.py").write_text(FORMAT, encoding="utf-8")
    (package / "settings.py").write_text(READER, encoding="utf-8")
    info = site / "nano_truetune-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: nano-truetune\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS, encoding="utf-8")
    return site


def run(site: Path, *arguments: str, cwd: Path, **more: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(filter(None, (str(site), os.environ.get("PYTHONPATH"))))
    return subprocess.run(
        [commands_python(), "-m", "truetune", *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": path, **more},
        capture_output=True,
        text=True,
        check=False,
    )


def report(site: Path, *arguments: str, cwd: Path) -> dict[str, object]:
    done = run(site, *arguments, "--format", "json", cwd=cwd)
    value: dict[str, object] = json.loads(done.stdout)
    return value


def rules_of(value: dict[str, object]) -> list[str]:
    findings = value["findings"]
    assert isinstance(findings, list)
    return [finding["rule"] for finding in findings]


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    path = tmp_path / "rows.jsonl"
    lines = [{"turns": [f"What is {n}?", f"It is number {n}, of course!"]} for n in range(20)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def test_a_rule_and_a_format_of_a_plugin(plugins: Path, rows: Path, tmp_path: Path) -> None:
    tokenizer = str(folder("qwen3"))
    found = report(plugins, "check", str(rows), "-t", tokenizer, cwd=tmp_path)
    assert "shouting-answer" in rules_of(found)
    alone = report(plugins, "check", str(rows), "-t", tokenizer, "--select", "NANO1", cwd=tmp_path)
    assert rules_of(alone) == ["shouting-answer"]
    shown = run(plugins, "explain", "NANO1", cwd=tmp_path)
    assert "Answers end with an exclamation mark" in shown.stdout
    # It names no fault: it is listed as one of its own.
    heading, line = run(plugins, "rules", "NANO1", cwd=tmp_path).stdout.splitlines()
    assert heading == "shouting-answer (1 rule): Answers end with an exclamation mark."
    assert line.startswith("NANO1  shouting-answer")


def test_a_rule_of_a_plugin_may_not_be_called_as_a_fault(plugins: Path, tmp_path: Path) -> None:
    path = plugins / "nano_truetune" / "rules" / "shouting_answer.py"
    path.rename(path.with_name("prompts_in_loss.py"))
    done = run(plugins, "rules", cwd=tmp_path)
    assert done.returncode == 2
    assert "is called prompts-in-loss, as is a fault of truetune" in done.stderr


def test_a_config_reader_of_a_plugin(plugins: Path, rows: Path, tmp_path: Path) -> None:
    settings = tmp_path / "nano.yaml"
    settings.write_text(
        f"base: {folder('qwen3')}\nrows: {rows.name}\nlr: 1.0e-4\nblok: 512\n", encoding="utf-8"
    )
    found = report(plugins, "check", str(settings), cwd=tmp_path)
    assert "shouting-answer" in rules_of(found), "the rows that the file names are read"
    assert "unknown-setting" in rules_of(found)
    assert "blok is not a setting of nano 1.0; did you mean block?" in json.dumps(found)


def test_without_plugins(plugins: Path, rows: Path, tmp_path: Path) -> None:
    done = run(
        plugins, "check", str(rows), "-t", str(folder("qwen3")), cwd=tmp_path, TRUETUNE_PLUGINS="0"
    )
    assert done.returncode == 2
    assert "no format fits" in done.stderr


@pytest.mark.parametrize(
    ("file", "old", "new", "said"),
    [
        ("rules/shouting_answer.py", '"NANO1"', '"ROW003"', "is called ROW003"),
        ("rules/shouting_answer.py", "from truetune", "from no_truetune", "ModuleNotFoundError"),
        (
            "rules/shouting_answer.py",
            '    code = "NANO1"',
            '    code = "NANO1"\n    fault = "prompts-in-loss"',
            "ShoutingAnswer.fault is 'prompts-in-loss'; give it a member of",
        ),
        (
            "rules/shouting_answer.py",
            "def add_batch",
            "def batch",
            "ShoutingAnswer.batch is called add_batch now",
        ),
        ("formats.py", '"turns", ("turns"', '"text", ("turns"', "the format text already exists"),
        ("formats.py", 'RowFormat("turns"', 'dict(name="turns"', "can't be loaded"),
        ("settings.py", 'name="nano"', 'name="trl"', "trl is read already"),
    ],
)
def test_a_plugin_that_is_broken_is_named(
    file: str, old: str, new: str, said: str, plugins: Path, rows: Path, tmp_path: Path
) -> None:
    path = plugins / "nano_truetune" / file
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")
    settings = tmp_path / "nano.yaml"
    settings.write_text(f"base: m\nrows: {rows.name}\nlr: 1.0e-4\n", encoding="utf-8")
    done = run(plugins, "check", str(settings), str(rows), "-t", str(folder("qwen3")), cwd=tmp_path)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
