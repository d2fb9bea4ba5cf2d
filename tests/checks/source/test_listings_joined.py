"""Listings of files that a script joins by position, each in another order."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.lint import lint
from truetune.checks.source.evidence import listings_joined_by_position

HEAD = "import glob, os\nfrom pathlib import Path\nfrom natsort import natsorted\n"
JOIN = "rows = [{'prompt': open(p).read(), 'completion': open(q).read()} for p, q in zip(A, B)]\n"
BY_INT = "sorted(Path('out').glob('*.txt'), key=lambda p: int(p.stem))"
FUNCTION = "def number(path):\n    return int(path.stem.split('_')[1])\n"


@pytest.mark.parametrize(
    ("one", "other", "found"),
    [
        ("sorted(Path('in').glob('*.txt'))", BY_INT, 1),
        ("sorted(glob.glob('in/*.txt'))", "natsorted(glob.glob('out/*.txt'))", 1),
        ("[str(p) for p in sorted(Path('in').iterdir())]", BY_INT, 1),
        ("sorted(os.listdir('in'))", "sorted(os.listdir('out'), key=number)", 1),
        ("os.listdir('in')", "os.listdir('out')", 1),
        ("sorted(glob.glob('in/*'), reverse=True)", "sorted(glob.glob('out/*'))", 1),
        # One order on both sides, however it is written.
        ("sorted(Path('in').glob('*.txt'))", "sorted(Path('out').glob('*.txt'))", 0),
        ("sorted(Path('in').glob('*.txt'), key=lambda f: f.name)", "sorted(glob.glob('out/*'))", 0),
        ("sorted(Path('in').glob('*'), key=lambda f: int(f.stem))", BY_INT, 0),
        ("sorted(os.listdir('in'), key=number)", "natsorted(os.listdir('out'))", 0),
        # A side that is no listing, a key that is not plain, and a side that is filtered.
        ("sorted(Path('in').glob('*.txt'))", "range(10)", 0),
        ("sorted(Path('in').glob('*.txt'), key=os.path.getmtime)", BY_INT, 0),
        ("[p for p in sorted(Path('in').glob('*')) if p.stem in known]", BY_INT, 0),
    ],
)
def test_two_listings(one: str, other: str, found: int, tmp_path: Path) -> None:
    path = tmp_path / "build.py"
    path.write_text(f"{HEAD}{FUNCTION}A = {one}\nB = {other}\n{JOIN}", encoding="utf-8")
    findings = lint([path], select=["SRC183"]).findings
    assert [one.severity for one in findings] == ["warning"] * found


@pytest.mark.parametrize(("width", "severities"), [(1, ["error"]), (4, [])])
def test_files_that_lie_here_are_put_in_order(
    width: int, severities: list[str], tmp_path: Path
) -> None:
    """Names of as many digits are in one order by name and by number."""
    for folder in ("in", "out"):
        (tmp_path / folder).mkdir()
        for n in range(1, 13):
            (tmp_path / folder / f"{n:0{width}d}.txt").touch()
    path = tmp_path / "build.py"
    text = f"{HEAD}a = sorted(Path('in').glob('*.txt'))\nb = {BY_INT}\n{JOIN}"
    path.write_text(text.replace("zip(A, B)", "zip(a, b)"), encoding="utf-8")
    assert [one.severity for one in lint([path], select=["SRC183"]).findings] == severities


def test_a_folder_of_too_many_files_is_put_in_no_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part of the names would be in another order than all of them."""
    monkeypatch.setattr(listings_joined_by_position, "MAX_FILES", 11)
    for folder in ("in", "out"):
        (tmp_path / folder).mkdir()
        for n in range(1, 13):
            (tmp_path / folder / f"{n}.txt").touch()
    path = tmp_path / "build.py"
    text = f"{HEAD}a = sorted(Path('in').glob('*.txt'))\nb = {BY_INT}\n{JOIN}"
    path.write_text(text.replace("zip(A, B)", "zip(a, b)"), encoding="utf-8")
    assert [one.severity for one in lint([path], select=["SRC183"]).findings] == ["warning"]


def test_names_that_no_file_system_has_and_empty_targets(tmp_path: Path) -> None:
    path = tmp_path / "build.py"
    listing = "sorted(Path('in\\0').glob('*.txt'))"
    text = f"{HEAD}for () in enumerate(x): pass\na = {listing}\nb = {BY_INT}\n{JOIN}"
    path.write_text(text.replace("zip(A, B)", "zip(a, b)"), encoding="utf-8")
    report = lint([path], select=["SRC183"])
    assert len(report.findings) == 1
    assert not report.not_judged


LOOPS = (
    "for i, p in enumerate(A):\n    rows.append((p.read_text(), B[i].read_text()))\n",
    "for i in range(len(A)):\n    rows.append((A[i].read_text(), B[i].read_text()))\n",
    "rows = [(A[i].read_text(), B[i].read_text()) for i in range(len(A))]\n",
)


@pytest.mark.parametrize("loop", LOOPS)
def test_one_index_joins_as_zip_does(loop: str, tmp_path: Path) -> None:
    path = tmp_path / "build.py"
    first = "A = sorted(Path('in').glob('*.txt'))\n"
    path.write_text(f"{HEAD}rows = []\n{first}B = {BY_INT}\n{loop}", encoding="utf-8")
    assert len(lint([path], select=["SRC183"]).findings) == 1
    path.write_text(
        f"{HEAD}rows = []\n{first}B = sorted(Path('out').glob('*.txt'))\n{loop}", encoding="utf-8"
    )
    assert not lint([path], select=["SRC183"]).findings


def test_a_list_that_is_sorted_in_place(tmp_path: Path) -> None:
    path = tmp_path / "build.py"
    made = "A = glob.glob('in/*.txt')\nA.sort()\nB = glob.glob('out/*.txt')\nB.sort(KEY)\n"
    path.write_text(HEAD + made.replace("KEY", "") + JOIN, encoding="utf-8")
    assert not lint([path], select=["SRC183"]).findings
    key = "key=lambda p: int(os.path.basename(p)[:-4])"
    path.write_text(HEAD + made.replace("KEY", key) + JOIN, encoding="utf-8")
    assert len(lint([path], select=["SRC183"]).findings) == 1
