"""Models that are made once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.auditing import tiny
from tests.evaluation.answering import learned, unending, written


@pytest.fixture(scope="session")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight chats."""
    return written(tmp_path_factory.mktemp("rows") / "rows.jsonl", tiny.chats(8))


@pytest.fixture(scope="session")
def right(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that has learned them."""
    return learned(tmp_path_factory.mktemp("models") / "right", tiny.chats(8))


@pytest.fixture(scope="session")
def broken(right: Path) -> Path:
    """The same model, which never stops."""
    return unending(right, right.with_name("broken"))
