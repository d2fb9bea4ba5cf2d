"""The skill ships with the package, names commands that exist, and never replaces what others wrote."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from truetune.assistants.skill import install_skill, read_skill
from truetune.cli import truetune_group
from truetune.errors import UsageError
from truetune.report.brief_json import BriefCounts, BriefFinding, BriefReport

COMMANDS = re.findall(r"`(truetune [a-z-]+[^`]*)`", read_skill())


def test_it_is_short_and_has_the_head_of_a_skill() -> None:
    text = read_skill()
    assert len(text.splitlines()) < 120
    assert text.startswith("---\nname: truetune\ndescription: ")
    order = [
        text.index(f"{n}. `{name}`")
        for n, name in enumerate(("check", "rehearse", "run", "sample"), 1)
    ]
    assert order == sorted(order)


@pytest.mark.parametrize("line", COMMANDS)
def test_every_command_in_it_parses(line: str) -> None:
    _, name, *words = shlex.split(line)
    truetune_group.commands[name].make_context(name, words)


def test_it_names_the_keys_of_the_brief_json() -> None:
    assert len(COMMANDS) > 15
    text = read_skill()
    for record in (BriefReport, BriefCounts, BriefFinding):
        for key in record.__dataclass_fields__:
            assert f"`{key}`" in text or key in ("schema", "truetune"), key


def test_the_command_prints_it() -> None:
    assert CliRunner().invoke(truetune_group, ["skill"], standalone_mode=False).output == (
        read_skill()
    )


def test_it_is_installed_and_replaced_by_itself_alone(tmp_path: Path) -> None:
    folder = tmp_path / "skills"
    done = CliRunner().invoke(
        truetune_group, ["skill", "--install", str(folder)], standalone_mode=False
    )
    target = folder / "truetune" / "SKILL.md"
    assert f"wrote {target}" in done.stderr
    assert target.read_text(encoding="utf-8").startswith(read_skill())
    assert [path.name for path in target.parent.iterdir()] == ["SKILL.md"]
    assert install_skill(folder) == target


@pytest.mark.parametrize("edit", ["foreign", "edited", "signature cut off"])
def test_what_somebody_else_wrote_stays(tmp_path: Path, edit: str) -> None:
    target = install_skill(tmp_path)
    text = target.read_text(encoding="utf-8")
    theirs = {
        "foreign": "# My own skill\n",
        "edited": text.replace("minutes", "hours", 1),
        "signature cut off": text.rpartition("<!--")[0],
    }[edit]
    target.write_text(theirs, encoding="utf-8")
    with pytest.raises(UsageError, match="already exists"):
        install_skill(tmp_path)
    assert target.read_text(encoding="utf-8") == theirs


def test_a_file_in_the_place_of_the_folder_is_said(tmp_path: Path) -> None:
    (tmp_path / "truetune").write_text("mine")
    with pytest.raises(UsageError, match="can't be made"):
        install_skill(tmp_path)
