"""`truetune.fix`, and the exit codes of `truetune fix`: 1 what is left, 3 what could not be judged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import truetune
from tests.fixing import chat
from truetune.checks.rows.turn_roles_unknown_to_template import TurnRolesUnknownToTemplate
from truetune.cli import truetune_group
from truetune.demo import TOKENIZER
from truetune.errors import UsageError
from truetune.fixing.remedies.rename_role_aliases import RenameRoles

BOT = {"messages": [{"role": "human", "content": "Open?"}, {"role": "bot", "content": "It is."}]}
NO_TURNS: dict[str, Any] = {"messages": []}


def _data(tmp_path: Path, *rows: Any) -> Path:
    path = tmp_path / "rows.jsonl"
    lines = (row if isinstance(row, str) else json.dumps(row) for row in rows)
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def _exit_code(*words: str | Path) -> int:
    result = CliRunner().invoke(
        truetune_group, ["fix", *map(str, words), "--quiet"], standalone_mode=False
    )
    assert result.exception is None, result.exception
    return int(result.return_value)


def test_rows_are_fixed_as_by_the_command(tmp_path: Path) -> None:
    data = _data(tmp_path, BOT, chat())
    made = truetune.fix(data, TOKENIZER, tmp_path / "a.jsonl")
    assert isinstance(made, truetune.Fixed)
    assert (made.rows, made.changed_rows, made.exit_code(), made.not_judged) == (2, 1, 0, ())
    assert _exit_code(data, "-t", TOKENIZER, "-o", tmp_path / "b.jsonl") == 0
    assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes()
    assert (
        truetune.check(
            tmp_path / "a.jsonl", TOKENIZER, select=["turn-roles-unknown-to-template"]
        ).findings
        == ()
    )


def test_a_diff_writes_nothing(tmp_path: Path) -> None:
    data = _data(tmp_path, BOT)
    made = truetune.fix(data, TOKENIZER, tmp_path / "a.jsonl", diff=True)
    assert not (tmp_path / "a.jsonl").exists()
    assert made.diff is not None
    assert '+{"messages": [{"role": "user"' in made.diff
    assert made.exit_code() == 1
    assert truetune.fix(_data(tmp_path, chat()), TOKENIZER, diff=True).exit_code() == 0


def test_without_an_output_the_result_says_what_would_be_done(tmp_path: Path) -> None:
    made = truetune.fix(_data(tmp_path, BOT), TOKENIZER)
    assert (made.output, made.changed_rows, made.exit_code()) == (None, 1, 0)
    assert [path.name for path in tmp_path.iterdir()] == ["rows.jsonl"]


def test_settings_are_those_of_a_run(tmp_path: Path) -> None:
    data = _data(tmp_path, BOT, NO_TURNS)
    assert truetune.fix(data, TOKENIZER, select=["turn-roles-unknown-to-template"]).exit_code() == 0
    assert (
        truetune.fix(data, TOKENIZER, ignore=["turn-roles-unknown-to-template"]).changed_rows == 0
    )
    assert truetune.fix(data, TOKENIZER, tmp_path / "a.jsonl", unsafe=True).dropped_rows == 1
    with pytest.raises(UsageError, match="fix takes one at a time"):
        truetune.fix([data, data], TOKENIZER)


@pytest.mark.parametrize(
    ("rows", "words", "code"),
    [
        ((chat(),), [], 0),
        ((BOT,), [], 0),
        ((NO_TURNS, chat()), [], 1),
        ((chat(),), ["--select", "template-rejects-rows"], 3),
        ((NO_TURNS, chat()), ["--select", "TPL", "--select", "ROW013"], 1),
        ((chat(),), ["--select", "template-rejects-rows", "--allow-unjudged"], 0),
        (("{broken", chat()), [], 1),
        (("{broken", chat()), ["--ignore", "malformed-rows"], 3),
    ],
)
def test_exit_codes_without_a_tokenizer(
    rows: tuple[Any, ...], words: list[str], code: int, tmp_path: Path
) -> None:
    data = _data(tmp_path, *rows)
    assert _exit_code(data, "-o", tmp_path / "fixed.jsonl", *words) == code


def test_a_rule_or_remedy_that_fails_leaves_the_others_standing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = _data(tmp_path, BOT, chat(5, "a"))

    def fail(*_: object) -> None:
        raise RuntimeError("no such thing")

    for kind, method in ((RenameRoles, "attempts"), (TurnRolesUnknownToTemplate, "add_batch")):
        with monkeypatch.context() as patch:
            patch.setattr(kind, method, fail)
            made = truetune.fix(data, TOKENIZER)
        assert (
            "malformed-rows",
            "write numbers and truth values in contents as text",
        ) in made.changed
        assert any(
            part.what == "turn-roles-unknown-to-template" and "no such thing" in part.reason
            for part in made.not_judged
        )
