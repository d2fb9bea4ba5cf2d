"""One set of encoded data for all tests of trainers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.trainers import Row, lay_out, rows_of


@pytest.fixture(scope="session")
def laid_out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the folders `encoded`, `packed` and `weighted`."""
    return lay_out(tmp_path_factory.mktemp("trainers"))


@pytest.fixture
def here(laid_out: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A working folder of one's own that holds the encoded data, and no cache from before."""
    datasets = pytest.importorskip("datasets")
    for source in laid_out.iterdir():
        (tmp_path / source.name).symlink_to(source)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    return tmp_path


@pytest.fixture
def rows(laid_out: Path) -> list[Row]:
    return rows_of(laid_out / "encoded")


@pytest.fixture
def packs(laid_out: Path) -> list[Row]:
    return rows_of(laid_out / "packed")


@pytest.fixture
def weighted(laid_out: Path) -> list[Row]:
    return rows_of(laid_out / "weighted")
