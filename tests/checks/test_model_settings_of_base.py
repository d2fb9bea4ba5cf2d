"""Settings of config.json that change what the same weights compute, in old and new ways to write them."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.checks.pages.checkpoint import findings
from truetune.checks.checkpoint.model_settings_differ_from_base import ModelSettingsDifferFromBase

LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0}
SAME = {
    "theta in the new way": (
        {"rope_parameters": {"rope_theta": 500000.0, "rope_type": "default"}},
        {"rope_theta": 500000.0},
    ),
    "scaling in the new way": (
        {"rope_parameters": {"rope_theta": 5e5, **LLAMA3}},
        {"rope_theta": 500000, "rope_scaling": LLAMA3},
    ),
    "the type's old name": (
        {"rope_scaling": {"rope_type": "linear", "factor": 2.0}},
        {"rope_scaling": {"type": "linear", "factor": 2.0}},
    ),
    "theta and scaling by kinds of layers": (
        {
            "rope_parameters": {
                "full_attention": {"rope_theta": 1e6, "rope_type": "linear", "factor": 8.0},
                "sliding_attention": {"rope_theta": 10000.0, "rope_type": "default"},
            }
        },
        {"rope_theta": 1e6, "rope_scaling": {"rope_type": "linear", "factor": 8.0}},
    ),
    "a default of the scaling is written out": (
        {"rope_parameters": {"rope_theta": 5e5, **LLAMA3, "attention_factor": 1.0}},
        {"rope_theta": 5e5, "rope_scaling": LLAMA3},
    ),
    "no scaling by its default type": (
        {"rope_scaling": None},
        {"rope_scaling": {"type": "default"}},
    ),
    "a key that a release dropped": ({}, {"sliding_window": 4096}),
    "a rounded epsilon": ({"rms_norm_eps": 1e-5}, {"rms_norm_eps": 0.00001}),
    "other keys": ({"use_cache": False, "dtype": "float16"}, {"use_cache": True}),
}
OTHER = {
    "theta was lost": ({}, {"rope_theta": 500000.0}),
    "theta of another model": ({"rope_theta": 10000.0}, {"rope_theta": 1000000.0}),
    "scaling was lost": ({"rope_theta": 5e5}, {"rope_theta": 5e5, "rope_scaling": LLAMA3}),
    "scaling came": ({"rope_scaling": {"type": "linear", "factor": 4.0}}, {}),
    "another factor": (
        {"rope_scaling": {"type": "linear", "factor": 4.0}},
        {"rope_scaling": {"type": "linear", "factor": 2.0}},
    ),
    "a shorter window": ({"sliding_window": 512}, {"sliding_window": 4096}),
    "no soft cap": ({"final_logit_softcapping": 0.0}, {"final_logit_softcapping": 30.0}),
    "another activation": ({"hidden_act": "gelu"}, {"hidden_act": "silu"}),
}


def found(own: object, of_base: object, folder: Path) -> list[str]:
    """The rules that find something between two tiny models with these edits of config.json."""
    block = yaml.safe_dump({"llama": 2, "config": own, "base": {"llama": 2, "config": of_base}})
    return [one.rule for one in findings(ModelSettingsDifferFromBase, block, folder)]


@pytest.mark.parametrize("case", SAME)
def test_the_same_settings_have_no_finding(case: str, tmp_path: Path) -> None:
    assert found(*SAME[case], tmp_path) == []


@pytest.mark.parametrize("case", OTHER)
def test_other_settings_are_found(case: str, tmp_path: Path) -> None:
    assert found(*OTHER[case], tmp_path) == ["model-settings-differ-from-base"]
