"""The Dockerfile runs the README's command, over files from which the package can be built."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def instructions(name: str) -> list[str]:
    """What stands after each instruction of this name in the Dockerfile."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    return re.findall(rf"^{name} (.+)$", text, re.MULTILINE)


def test_the_image_runs_the_readmes_command() -> None:
    (command,) = instructions("RUN")
    assert command in (ROOT / "README.md").read_text(encoding="utf-8").splitlines()


def test_the_entry_point_is_what_the_command_installs() -> None:
    (command,) = instructions("RUN")
    (entry,) = instructions("ENTRYPOINT")
    installed = command.split(" && ")[-1].split()[0]
    assert entry == f'["{instructions("WORKDIR")[0]}/{installed}"]'


def test_the_copied_files_are_enough_to_build_the_package(tmp_path: Path) -> None:
    pytest.importorskip("hatchling", reason="hatchling is not installed")
    for line in instructions("COPY"):
        *sources, target = line.split()
        for source in sources:
            if (ROOT / source).is_dir():
                shutil.copytree(ROOT / source, tmp_path / target)
            else:
                shutil.copy(ROOT / source, tmp_path / target)
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert list((tmp_path / "dist").glob("truetune-*.whl"))
