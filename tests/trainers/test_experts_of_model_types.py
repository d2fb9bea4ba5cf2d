"""What LoRA reaches of mixtures of experts: names are matched as peft matched them with each measured type."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from truetune.trainers.experts_of_model_types import (
    ExpertsOfModelType,
    Measurement,
    Part,
    experts_of_model_type,
    is_name_of,
    lines_of_page_table,
    load_measurements,
    reach_of_lora,
)

ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
TARGETS: dict[str, str | tuple[str, ...]] = {
    "all-linear": "all-linear",
    "mlp names": (*ATTENTION, "gate_proj", "up_proj", "down_proj"),
    "w1 w2 w3": (*ATTENTION, "w1", "w2", "w3"),
    "attention": ATTENTION,
}
PARTS: tuple[Part, ...] = ("experts", "router", "shared", "dense")
ONE_OF_EACH_KIND = ("gpt_oss", "mixtral", "deepseek_v3", "nemotron_h", "qwen3_5_moe_text")
"""Never reached by names; by w1 to w3; with shared experts left out; not gated; with shared experts alone"""


def is_new(measurement: Measurement) -> bool:
    """Has peft's table of renamed targets, for lists and for all-linear?"""
    return measurement.peft.startswith(("0.20", "0.21"))


def some_or_all(share: float | None) -> str | None:
    if share is None:
        return None
    if share in (0, 1):
        return "all" if share else "none"
    return "some"


def expected_reach(facts: ExpertsOfModelType, name: str, new: bool) -> dict[str, str | None]:
    if name == "target_parameters":
        fused = [
            one for one in facts.experts if f"{one.removesuffix('.weight')}" not in facts.linear
        ]
        reach = reach_of_lora(facts, ATTENTION, fused, renames_lists=new, renames_all_linear=new)
    else:
        reach = reach_of_lora(facts, TARGETS[name], renames_lists=new, renames_all_linear=new)
    return {part: some_or_all(reach.share(part)) for part in PARTS}


@pytest.mark.parametrize("measurement", load_measurements(), ids=lambda one: one.transformers)
def test_names_are_matched_as_peft_matched_them(measurement: Measurement) -> None:
    compared = 0
    for model_type, facts in measurement.types.items():
        for name, real in measurement.reach[model_type].items():
            if "refused" in real:
                continue
            found = expected_reach(facts, name, is_new(measurement))
            measured = {part: some_or_all(real.get(part)) for part in PARTS}
            assert found == measured, (model_type, name)
            compared += 1
    assert compared > 80


# Small models on the meta device hold no numbers: 3 s of processor time, most of it the import of torch.
def test_one_type_of_each_kind_is_as_the_table_says() -> None:
    pytest.importorskip("torch")
    from bench.experts_of_model_types import measure_experts

    # Where this fails with newer releases: `python -m bench.experts_of_model_types --write`
    newest = load_measurements()[-1]
    for model_type in ONE_OF_EACH_KIND:
        measured = measure_experts(model_type)
        assert measured["lora"] == newest.reach[model_type], model_type
        facts = newest.types[model_type]
        for name in ("experts", "router", "linear"):
            assert tuple(measured[name]) == getattr(facts, name), model_type


def test_half_of_a_pair_is_named() -> None:
    facts = experts_of_model_type("qwen3_moe")
    assert facts is not None
    assert reach_of_lora(facts, ("q_proj", "up_proj", "down_proj")).missing_of_pair == (
        "gate_proj",
    )
    assert reach_of_lora(facts, ("q_proj", "down_proj")).missing_of_pair == ()
    old = reach_of_lora(facts, ("q_proj", "up_proj"), renames_lists=False)
    assert old.missing_of_pair == ()
    assert old.share("experts") == 0


def test_experts_are_linear_before_transformers_5() -> None:
    old, new = (
        experts_of_model_type("mixtral", has_fused_experts=fused) for fused in (False, True)
    )
    assert old is not None
    assert not old.fused
    assert reach_of_lora(old, ("w1", "w2", "w3")).share("experts") == 1
    assert new is not None
    assert new.fused
    assert experts_of_model_type("llama") is None


@pytest.mark.parametrize(
    ("name", "inside", "expected"),
    [
        ("experts.down_proj", "mlp.experts.down_proj", True),
        ("7.mlp.experts.down_proj", "mlp.experts.down_proj", True),
        ("own_proj", "mlp.experts.down_proj", False),
        ("mlp.experts.*.down_proj", "mlp.experts.down_proj", False),
        ("gate", "mlp.gate", True),
        ("gate", "mlp.experts.gate_up_proj", False),
    ],
)
def test_a_name_means_an_ending(name: str, inside: str, expected: bool) -> None:
    assert is_name_of(name, inside) is expected


def test_the_types_of_the_field_are_measured() -> None:
    measured: set[Any] = set(load_measurements()[-1].types)
    assert measured >= {
        "mixtral", "qwen2_moe", "qwen3_moe", "qwen3_next", "qwen3_5_moe_text", "deepseek_v2", "deepseek_v3", "gpt_oss",
        "olmoe", "granitemoe", "granitemoehybrid", "glm4_moe", "llama4_text", "nemotron_h", "ernie4_5_moe",
        "minimax_m2", "phimoe", "gemma4_text", "lfm2_moe", "hunyuan_v1_moe",
    }  # fmt: skip


def test_the_page_holds_the_table() -> None:
    page = (Path(__file__).parents[2] / "docs" / "experts.md").read_text(encoding="utf-8")
    assert "\n".join(lines_of_page_table()) in page
    newest = load_measurements()[-1]
    assert f"transformers {newest.transformers} and peft {newest.peft}" in page
