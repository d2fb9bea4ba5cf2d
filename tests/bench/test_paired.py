"""A source tree beside itself: the bench sees no difference in what is written and found."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.paired import COMMANDS, compare
from tests.parts import folder

SOURCE = Path(__file__).parents[2] / "src"


@pytest.mark.parametrize("command", COMMANDS)
def test_a_tree_gives_what_itself_gives(command: str, tmp_path: Path) -> None:
    data = tmp_path / "chats.jsonl"
    messages = [{"role": "user", "content": "Where?"}, {"role": "assistant", "content": "Here."}]
    data.write_text(
        "".join(json.dumps({"messages": messages}) + "\n" for _ in range(20)), encoding="utf-8"
    )
    name, *cells, output = (
        compare(command, (SOURCE, SOURCE), data, str(folder("smollm2")), 1).strip("| ").split(" | ")
    )
    assert name == f"smollm2 {command}"
    assert len(cells) == 9
    assert output == "same"
