"""Fixtures for all tests."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests import tiers
from tests.parts import FAMILIES, folder
from tests.parts.loaded_once import keep_tokenizers_of_parts

OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
os.environ.update({**OFFLINE, "TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"})

# Containers often forbid bytecode files: each command that a test starts would then compile all of truetune again, a
# second each, and the tests start hundreds.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# A CI server or `nohup` starts us with SIGINT ignored, and children inherit that: programs that a test
# interrupts would never end, and the test would wait for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile(
    "steady", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("steady")
keep_tokenizers_of_parts()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out what is not of the fast tier where that alone is asked for: to import it takes torch."""
    if config.option.markexpr != "fast" or tiers.leads_to_fast(collection_path):
        return None
    return True


def pytest_itemcollected(item: pytest.Item) -> None:
    """Give each test the marker of its tier."""
    if item.get_closest_marker("slow") is None:
        item.add_marker(pytest.mark.fast if tiers.is_fast(item.path) else pytest.mark.real)


def pytest_collection_finish() -> None:
    """Keep the collected tests and imported modules out of garbage collection."""
    _freeze_living_objects()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Keep what a file of tests leaves behind (imports, caches) out of garbage collection."""
    if nextitem is not None and nextitem.path != item.path:
        _freeze_living_objects()


def _freeze_living_objects() -> None:
    """Collect garbage once, and never visit again what survives.

    A worker holds 25,000 tests, all packages and many tokenizers. Trainers, accelerate and our own merge collect
    explicitly, a second each time in such a heap: a file of 39 s alone took 108 s late in the suite.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _fast_tests_need_nothing_heavy(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test of the fast tier that imports torch or asks for parts."""
    if request.node.get_closest_marker("fast") is None:
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        tiers.forbid_heavy(patch)
        yield


@pytest.fixture(params=FAMILIES)
def family(request: pytest.FixtureRequest) -> Path:
    """Each real tokenizer folder in turn; its name is the family's."""
    return folder(request.param)
