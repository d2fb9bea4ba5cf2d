"""Each reason for slow generation is found by itself, and a healthy model is left alone."""

from __future__ import annotations

import pytest

from truetune.checks.cause.settings_make_generation_slow import SettingsMakeGenerationSlow
from truetune.generation.answer_samples import SampledRun
from truetune.generation.backends.backend import GenerationSpeed
from truetune.generation.evidence_on_causes_of_answers import ModelEvidence


def said(pace: GenerationSpeed | None) -> list[str]:
    return [
        finding.message
        for finding in SettingsMakeGenerationSlow(
            ModelEvidence(SampledRun(()), speed=pace)
        ).findings()
    ]


@pytest.mark.parametrize(
    "pace",
    [
        None,
        GenerationSpeed(0.08, 0.10, cached=True),
        GenerationSpeed(0.08, 0.20, cached=True),
        GenerationSpeed(0.0004, 0.003, cached=True),
        GenerationSpeed(0.01, 0.01, cached=True, device="cuda"),
    ],
)
def test_a_healthy_one(pace: GenerationSpeed | None) -> None:
    assert said(pace) == []


@pytest.mark.parametrize(
    ("pace", "text"),
    [
        (GenerationSpeed(0.01, 0.011, cached=False, device="cuda"), "switch the cache off"),
        (GenerationSpeed(0.08, 0.9, cached=False), "switch the cache off"),
        (
            GenerationSpeed(0.08, 0.8, cached=True),
            "takes 10 times as long as after 8, as if there were no cache",
        ),
        (GenerationSpeed(0.08, 0.8), "as if there were no cache"),
        (GenerationSpeed(0.08, 0.08, cached=True, beams=4), "4 beams"),
        (GenerationSpeed(0.08, 0.08, cached=True, unused="Some GPU"), "on cpu, although Some GPU"),
    ],
)
def test_a_slow_one(pace: GenerationSpeed, text: str) -> None:
    (message,) = said(pace)
    assert text in message
