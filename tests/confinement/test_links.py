"""The double of a folder."""

from __future__ import annotations

from pathlib import Path

from truetune.confinement.copy_folder_by_links import copy_tree_by_links


def test_small_files_are_copied_large_ones_linked(tmp_path: Path) -> None:
    source = tmp_path / "source"
    for folder in ("out/deep", ".git/objects", "venv"):
        source.joinpath(folder).mkdir(parents=True)
    source.joinpath("venv", "pyvenv.cfg").touch()
    source.joinpath("out", "small").write_text("x")
    source.joinpath("out", "deep", "large").write_text("x" * 100)
    source.joinpath("cache.lock").touch()
    made = Path(copy_tree_by_links(str(source), str(tmp_path / "made"), copy_up_to=10))
    assert sorted(path.name for path in made.iterdir()) == [".git", "out", "venv"]
    assert made.joinpath(".git").is_symlink()
    assert made.joinpath("venv").is_symlink()
    assert not made.joinpath("out").is_symlink()
    assert not made.joinpath("out", "small").is_symlink()
    assert made.joinpath("out", "deep", "large").resolve() == source / "out" / "deep" / "large"


def test_a_folder_that_holds_its_double_ends(tmp_path: Path) -> None:
    tmp_path.joinpath("a").mkdir()
    made = Path(copy_tree_by_links(str(tmp_path), str(tmp_path / "work" / "here"), copy_up_to=10))
    assert sorted(path.name for path in made.iterdir()) == ["a", "work"]
    assert made.joinpath("work").is_symlink()


def test_what_is_not_there_is_empty(tmp_path: Path) -> None:
    assert (
        list(Path(copy_tree_by_links(str(tmp_path / "absent"), str(tmp_path / "made"))).iterdir())
        == []
    )
