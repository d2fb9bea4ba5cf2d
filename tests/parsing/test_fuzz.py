"""No input makes a reader crash, hang, take much memory, or raise what it does not promise."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import truetune
from tests.parsing.readers import OWN, of_others

ROOT = Path(truetune.__file__).parent
COUNT = int(os.environ.get("TRUETUNE_FUZZ", "5"))
"""Changed inputs for each reader, besides those that are broken for every format"""
SEED = int(os.environ.get("TRUETUNE_FUZZ_SEED", "1"))
SHARES = 2
"""Processes that share the modules: each loads the libraries once"""
SECONDS = 300 + 10 * COUNT


def users_of_the_guard() -> set[str]:
    """The modules that import a part of truetune.parsing."""
    found = set()
    for path in ROOT.rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if parts[0] == "parsing":
            continue
        text = path.read_text(encoding="utf-8")
        # Most of the thousand modules do not name it, and parsing those too takes seconds.
        nodes = ast.walk(ast.parse(text)) if "truetune.parsing" in text else ()
        for node in nodes:
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(
                "truetune.parsing"
            ):
                found.add(".".join(parts).removesuffix(".__init__"))
    return found


def test_every_reader_is_fed() -> None:
    """A new module that reads something belongs into `of_others`, or into `OWN` with a reason."""
    assert users_of_the_guard() == set(of_others()) | set(OWN)
    assert not set(of_others()) & set(OWN)


@pytest.mark.parametrize("share", range(SHARES))
def test_broken_input_ends_in_an_error_of_truetune(share: int, tmp_path: Path) -> None:
    modules = sorted(of_others())[share::SHARES]
    progress = tmp_path / "input"
    command = [
        sys.executable,
        "-m",
        "tests.parsing.fuzz_worker",
        ",".join(modules),
        str(COUNT),
        str(SEED),
        str(progress),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    last = repr(progress.read_bytes()[:200]) if progress.exists() else ""
    assert done.returncode == 0, f"exit code {done.returncode} at {last}\n{done.stderr[-2000:]}"
    *wrong, total = [json.loads(line) for line in done.stdout.splitlines()]
    assert not wrong, "\n".join(
        f"{one['file']}: {one['said']}: {one['input']}" for one in wrong[:20]
    )
    assert total["inputs"] > COUNT
