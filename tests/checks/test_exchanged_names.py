"""Names of roles that settings map the wrong way round, and rows that were not understood."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from truetune.cli import truetune_group

SETTINGS = (
    "model_name_or_path: m\nstage: sft\ndo_train: true\nfinetuning_type: lora\n"
    "dataset: calls\ntemplate: qwen\n"
)
WRONG = (
    ("agent", "customer"),
    ("Berater", "Kunde"),
    ("客服", "客户"),
    ("doctor", "patient"),
    ("staff", "guest"),
)
RIGHT = (
    ("customer", "agent"),
    ("Kunde", "Berater"),
    ("speaker_a", "speaker_b"),
    ("alice", "customer"),
    ("agent", "bob"),
)


def rows_of(first: str, second: str) -> list[dict[str, object]]:
    """Chats that the first greets in, and that end with the one or the other."""
    return [
        {
            "dialog": [
                {"speaker": first, "text": f"Good day, number {number}."},
                {"speaker": second, "text": f"My lamp {number} is dark."},
                {"speaker": first, "text": f"Turn the screw {number} times."},
                {"speaker": second, "text": f"Thanks, I will try that {number} times."},
            ][number % 2 :]
        }
        for number in range(12)
    ]


def run(path: Path) -> str:
    """What check prints of a file."""
    return CliRunner().invoke(truetune_group, ["check", str(path)]).stdout


def found(folder: Path, user: str, assistant: str) -> set[str]:
    tags = {
        "role_tag": "speaker",
        "content_tag": "text",
        "user_tag": user,
        "assistant_tag": assistant,
    }
    entry = {
        "file_name": "calls.json",
        "formatting": "sharegpt",
        "columns": {"messages": "dialog"},
        "tags": tags,
    }
    (folder / "dataset_info.json").write_text(json.dumps({"calls": entry}))
    (folder / "calls.json").write_text(json.dumps(rows_of(user, assistant)))
    (folder / "run.yaml").write_text(SETTINGS + f"dataset_dir: {folder}\n")
    output = run(folder / "run.yaml")
    return {name for name in ("roles-exchanged", "duplicate-rows") if f"] {name}" in output}


@pytest.mark.parametrize("names", WRONG)
def test_names_of_roles_tell_who_is_learned(names: tuple[str, str], tmp_path: Path) -> None:
    assert found(tmp_path, *names) == {"roles-exchanged"}


@pytest.mark.parametrize("names", RIGHT)
def test_names_that_say_nothing_or_the_right_are_left_alone(
    names: tuple[str, str], tmp_path: Path
) -> None:
    assert found(tmp_path, *names) == set()


def test_rows_that_were_not_understood_are_no_copies(tmp_path: Path) -> None:
    path = tmp_path / "calls.json"
    path.write_text(json.dumps([{"messages": row["dialog"]} for row in rows_of("a", "b")]))
    assert "ROW007" not in run(path)
    chat = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
    path.write_text(json.dumps([{"messages": chat}] * 12))
    assert "ROW007" in run(path)
