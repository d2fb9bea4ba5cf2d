"""What the demo shows before it trains."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

from rich.console import Console

from truetune.demo import BROKEN
from truetune.demo.plant_faults import write_faulty_tokenizer_copy
from truetune.demo.run_demo import _check_data


def test_lines_are_named_without_the_folder_of_the_package(tmp_path: Path) -> None:
    here, console = Path.cwd(), Console(file=StringIO(), record=True, width=100)
    assert _check_data(
        BROKEN, write_faulty_tokenizer_copy(tmp_path / "tokenizer"), console
    ).failed()
    said = console.export_text()
    assert "turn-roles-unknown-to-template: 6 of 212 rows" in said
    assert len(said.splitlines()) < 24, "it fits a screen"
    assert str(BROKEN.parent) not in said
    assert Path.cwd() == here
