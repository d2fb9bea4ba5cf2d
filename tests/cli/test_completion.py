"""A shell's questions are answered with commands, options, choices, rules and paths, and no rule is loaded for it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

import truetune
from truetune.checks.faults import Fault
from truetune.checks.rule_catalogue import all_rules
from truetune.cli import truetune_group
from truetune.cli.shell_completion import (
    COMPLETION_VARIABLE,
    complete_rule_names,
    completion_script,
)

SOURCES = str(Path(truetune.__file__).parents[1])


def offered_for(words: str) -> list[str]:
    """What a shell would offer for the last of the words."""
    *given, last = words.split(" ")[1:]
    found = ShellComplete(truetune_group, {}, "truetune", COMPLETION_VARIABLE).get_completions(
        given, last
    )
    return [f"{item.type},{item.value}" for item in found]


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("truetune che", "plain,check"),
        ("truetune explain pad-is", "plain,pad-is-stop-token"),
        ("truetune check --select TOK001", "plain,TOK001"),
        ("truetune rehearse --ignore packed-doc", "plain,packed-document-differs-from-alone"),
        ("truetune check --ignore prompts-in", "plain,prompts-in-loss"),
        ("truetune check --learn l", "plain,last"),
        ("truetune check --max-l", "plain,--max-length"),
        ("truetune check cha", "file,cha"),
        ("truetune train set", "file,set"),
        ("truetune check --html re", "file,re"),
        ("truetune completion z", "plain,zsh"),
    ],
)
def test_what_is_offered(words: str, offered: str) -> None:
    assert offered in offered_for(words)


def test_it_knows_all_rules_and_faults_without_loading_one() -> None:
    names = {str(item.value) for item in complete_rule_names(None, None, "")}  # type: ignore[arg-type]
    rules = {word for rule in all_rules() for word in (rule.name(), rule.code)}
    assert names == rules | {fault.kebab_name for fault in Fault}


def test_a_shell_s_question_loads_nothing_heavy() -> None:
    code = (
        "import sys, truetune.cli\ntry: truetune.cli.main()\nexcept SystemExit as end:"
        " print(end.code)\nprint([m for m in ('numpy', 'rich', 'pydantic', 'pyarrow',"
        " 'truetune.checks') if m in sys.modules])"
    )
    words = {
        "COMP_WORDS": "truetune explain pad-is",
        "COMP_CWORD": "2",
        COMPLETION_VARIABLE: "bash_complete",
    }
    environment = {**os.environ, "PYTHONPATH": SOURCES, **words}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment
    )
    assert done.stdout.splitlines() == ["plain,pad-is-stop-token", "0", "[]"]
    assert done.stderr == ""


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script(shell: str, tmp_path: Path) -> None:
    text = completion_script(shell)
    assert COMPLETION_VARIABLE in text
    if program := shutil.which(shell):
        (tmp_path / "script").write_text(text, encoding="utf-8")
        assert (
            subprocess.run(
                [program, "-n", str(tmp_path / "script")], capture_output=True
            ).returncode
            == 0
        )
