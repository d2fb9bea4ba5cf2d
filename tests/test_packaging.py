"""The wheel and the sdist are whole: the one comes out of the other, and the wheel works alone."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from packaging.metadata import Metadata
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import truetune
from tests import licences_page
from truetune.demo import BROKEN, TOKENIZER

ROOT = Path(__file__).parents[1]


def build(folder: Path, out: Path, *options: str) -> dict[str, Path]:
    """Build the sdist and the wheel, or what the options ask for. Returns each by its suffix."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", str(out), *options],
        cwd=folder,
        check=True,
        capture_output=True,
    )
    return {path.suffix: path for path in out.iterdir()}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return build(ROOT, tmp_path_factory.mktemp("dist"))


def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as file:
        return set(file.namelist())


def metadata(wheel: Path) -> Metadata:
    with zipfile.ZipFile(wheel) as file:
        (path,) = (name for name in file.namelist() if name.endswith(".dist-info/METADATA"))
        return Metadata.from_email(file.read(path), validate=True)


def test_the_wheel_holds_every_file_of_the_source(built: dict[str, Path]) -> None:
    sources = ROOT / "src"
    tracked = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "src"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    wanted = {
        (ROOT / path).relative_to(sources).as_posix() for path in tracked if (ROOT / path).is_file()
    }
    assert wanted <= names(built[".whl"])
    assert {name for name in names(built[".whl"]) if ".dist-info" not in name} == wanted


def test_the_sdist_gives_the_same_wheel(built: dict[str, Path], tmp_path: Path) -> None:
    with tarfile.open(built[".gz"]) as file:
        file.extractall(tmp_path, filter="data")
    (folder,) = tmp_path.iterdir()
    for name in (
        "README.md",
        "CHANGELOG.md",
        "LICENSE",
        "docs",
        "tests",
        "bench",
        "examples",
        "constraints.txt",
    ):
        assert (folder / name).exists(), name
    again = build(folder, tmp_path / "dist", "-t", "wheel")
    assert names(again[".whl"]) == names(built[".whl"])


def test_the_metadata_is_complete(built: dict[str, Path]) -> None:
    about = metadata(built[".whl"])
    assert about.name == "truetune"
    assert str(about.version) == truetune.__version__
    assert about.license_expression == "Apache-2.0"
    assert about.license_files == ["LICENSE"]
    assert about.summary
    assert about.keywords
    assert about.author
    assert about.classifiers
    assert about.description_content_type == "text/markdown"
    assert about.description == (ROOT / "README.md").read_text(encoding="utf-8")
    assert str(about.requires_python) == ">=3.11"


def test_the_wheel_works_alone(built: dict[str, Path], tmp_path: Path) -> None:
    """In an isolated interpreter that sees the wheel before anything else, away from the sources."""
    zipfile.ZipFile(io.BytesIO(built[".whl"].read_bytes())).extractall(tmp_path / "installed")
    program = (
        f"import sys; sys.path.insert(0, {str(tmp_path / 'installed')!r}); import truetune; assert"
        f" truetune.__file__.startswith({str(tmp_path)!r}); from truetune.cli import main; main()"
    )
    command = [
        sys.executable,
        "-I",
        "-c",
        program,
        "check",
        str(BROKEN),
        "-t",
        str(TOKENIZER),
        "--html",
        "page.html",
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=os.environ)
    assert done.returncode == 1, done.stderr
    assert "ROW003" in done.stdout
    assert "<!doctype html>" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_the_licence_list_names_every_requirement() -> None:
    page = licences_page.PAGE.read_text(encoding="utf-8")
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in page.splitlines()
        if line.startswith("| ")
    ]
    listed = {row[0] for row in rows}
    for part in licences_page.PARTS:
        for line in licences_page.requirements(part):
            assert canonicalize_name(Requirement(line).name) in listed, line
    assert not [row for row in rows if "not said" in row[2] or "GPL" in row[2]]
