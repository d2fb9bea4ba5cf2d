"""The table of models that keep packed documents apart: one type of each kind is measured, and the page read."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from truetune.trainers.packing_of_model_types import (
    PACKING_OF_MODEL_TYPES,
    packed_model_type,
)

PAGE = Path(__file__).parents[2] / "docs" / "packed-documents.md"
ONE_OF_EACH_KIND = ("llama", "gpt_oss", "mamba2", "bamba", "granitemoehybrid", "qwen3_next")
IS_APART = 1e-5
MEASURE = """
import json, sys
from bench import packing_of_model_types as bench
bench.replace_kernels_by_functions_that_split()
print(json.dumps([[m.with_positions, m.with_borders] for m in map(bench.measure_mixing, sys.argv[1:])]))
"""


# A process of its own, for the kernels are replaced before models are imported; 8 s of processor time.
def test_one_type_of_each_kind_is_as_the_table_says() -> None:
    pytest.importorskip("torch")
    ran = subprocess.run(
        [sys.executable, "-c", MEASURE, *ONE_OF_EACH_KIND],
        capture_output=True,
        text=True,
        cwd=PAGE.parents[1],
        check=True,
    )
    figures = json.loads(ran.stdout.splitlines()[-1])
    for model_type, (with_positions, with_borders) in zip(ONE_OF_EACH_KIND, figures, strict=True):
        known = PACKING_OF_MODEL_TYPES[model_type]
        separates_alone = known.mask_follows_positions and not known.carries_state
        separates_as_trl = known.mask_follows_positions and (
            known.hands_borders_on or not known.carries_state
        )
        assert (with_positions < IS_APART) == separates_alone, model_type
        assert (with_borders < IS_APART) == separates_as_trl, model_type


def test_the_page_says_what_the_table_says() -> None:
    text = PAGE.read_text(encoding="utf-8")
    figures = {
        row[1]: (float(row[2]), float(row[3]))
        for row in re.finditer(
            r"^\| (\w+) \| [^|]* \| ([\d.e-]+) \| ([\d.e-]+) \|$", text, re.MULTILINE
        )
    }
    mixed = {
        model_type
        for model_type, known in PACKING_OF_MODEL_TYPES.items()
        if known.carries_state or not known.mask_follows_positions
    }
    assert set(figures) == mixed
    for model_type, (_, with_borders) in figures.items():
        known = PACKING_OF_MODEL_TYPES[model_type]
        is_apart = known.mask_follows_positions and known.hands_borders_on
        assert (with_borders < IS_APART) == is_apart, model_type
    apart = text.rpartition("These keep them apart")[2].partition("No other type")[0]
    assert (
        set(re.findall(r"\b[a-z]\w*\b", apart.partition(":")[2]))
        == set(PACKING_OF_MODEL_TYPES) - mixed
    )


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("openai/gpt-oss-20b", "gpt_oss"),
        ("unsloth/gpt-oss-120b-unsloth-bnb-4bit", "gpt_oss"),
        ("ibm-granite/granite-4.0-h-tiny", "granitemoehybrid"),
        ("ibm-granite/granite-4.0-micro", None),
        ("Qwen/Qwen3-Next-80B-A3B-Instruct", "qwen3_next"),
        ("Qwen/Qwen3.5-35B-A3B", "qwen3_5_moe_text"),
        ("Qwen/Qwen3-8B", None),
        ("LiquidAI/LFM2-1.2B", "lfm2"),
        ("LiquidAI/LFM2-VL-1.6B", None),
        ("LiquidAI/LFM2-8B-A1B", "lfm2_moe"),
        ("tiiuae/Falcon-H1-1.5B-Instruct", "falcon_h1"),
        ("tiiuae/Falcon3-7B-Instruct", None),
        ("nvidia/Llama-3.1-Nemotron-Nano-8B-v1", None),
        ("nvidia/NVIDIA-Nemotron-Nano-9B-v2", "nemotron_h"),
        ("facebook/opt-1.3b", "opt"),
    ],
)
def test_published_names_lead_to_types(name: str, expected: str | None) -> None:
    assert packed_model_type({}, name) == expected


def test_a_config_decides_before_a_name() -> None:
    assert packed_model_type({"model_type": "llama"}, "openai/gpt-oss-20b") == "llama"
    assert packed_model_type({"model_type": "of_tomorrow"}, "openai/gpt-oss-20b") is None
    assert packed_model_type({"model_type": "qwen3_5"}, "") == "qwen3_5_text"
