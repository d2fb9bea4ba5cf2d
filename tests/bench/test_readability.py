"""The figures of `bench.readability` on a small package, and what is drawn for the guess test."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.readability.guess import draw_names
from bench.readability.measure import functions_too_complex, measure_folder

MODULE = '''"""Counts letters."""

# Chosen, not measured.
LIMIT = 3  # noqa: X1


def count(text):
    """How many letters."""
    found = [letter for letter in text if letter.isalpha() and letter != "x"]
    return len(found) if found else 0


class Counter:
    """Counts."""

    def __init__(self):
        self.total = 0

    def add_text(self, text: str) -> int:
        """Add a text."""
        if (size := count(text)) > LIMIT:
            self.total += size
        return self.total
'''


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package of one module."""
    folder = tmp_path / "letters"
    folder.mkdir()
    (folder / "__init__.py").write_text("", encoding="utf-8")
    (folder / "counting.py").write_text(MODULE, encoding="utf-8")
    return folder


def test_figures_of_a_small_package(package: Path) -> None:
    measured = measure_folder(package)
    lines = MODULE.count("\n")
    assert (measured.lines, measured.files, measured.functions) == (lines, 2, 3)
    assert measured.comments_per_1000 == pytest.approx(1000 / lines), "a pragma is no comment"
    assert measured.one_word_share == 1.0
    # LIMIT, found, letter, size, and the parameters text (twice) and self (twice)
    assert measured.vague_share == pytest.approx(1 / 8)
    assert measured.comprehensions_per_1000 == pytest.approx(1000 / lines)
    assert measured.ternaries_per_1000 == pytest.approx(1000 / lines)
    assert measured.walruses_per_1000 == pytest.approx(1000 / lines)
    # count: 1 + loop + its condition + `and` + ternary = 5; __init__: 1; add_text: 2
    assert measured.mean_complexity == pytest.approx(8 / 3)


def test_a_folder_without_code_has_no_figures(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no Python files"):
        measure_folder(tmp_path)


@pytest.mark.parametrize(("branches", "too_complex"), [(11, False), (12, True)])
def test_the_limit_of_complexity(tmp_path: Path, branches: int, too_complex: bool) -> None:
    body = "".join(f"    if a == {number}:\n        a += 1\n" for number in range(branches))
    (tmp_path / "a.py").write_text(f"def change(a):\n{body}", encoding="utf-8")
    named = [(count, name) for count, _, name in functions_too_complex(tmp_path)]
    assert named == ([(13, "change")] if too_complex else [])


def test_what_is_drawn_shows_no_body(package: Path) -> None:
    drawn = draw_names(package, seed=1, modules=5, functions=5)
    assert {(one.shown, one.docstring) for one in drawn} == {
        ("letters/counting.py", "Counts letters."),
        ("letters/counting.py: count(text)", "How many letters."),
        ("letters/counting.py: Counter.add_text(self, text: str) -> int", "Add a text."),
    }
    assert drawn == draw_names(package, seed=1, modules=5, functions=5)
