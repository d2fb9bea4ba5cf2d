"""Fixtures for all tests."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.parts import FAMILIES, folder

OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
os.environ.update({**OFFLINE, "TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"})

# A CI server or `nohup` starts us with SIGINT ignored, and children inherit that: programs that a test
# interrupts would never end, and the test would wait for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile(
    "steady", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("steady")


@pytest.fixture(params=FAMILIES)
def family(request: pytest.FixtureRequest) -> Path:
    """Each real tokenizer folder in turn; its name is the family's."""
    return folder(request.param)
