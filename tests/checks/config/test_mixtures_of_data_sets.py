"""What an epoch draws of the data sets that LLaMA-Factory mixes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from truetune.checks.config.mixture_leaves_rows_out import MixtureLeavesRowsOut
from truetune.settings.stacks.read_config_of_any_stack import read_config

SETTINGS = {
    "stage": "sft",
    "model_name_or_path": "some/model",
    "dataset_dir": "data",
    "dataset": "shop,own",
    "template": "qwen",
    "finetuning_type": "lora",
    "output_dir": "out",
}
UNDER = {"mix_strategy": "interleave_under"}
OVER = {"mix_strategy": "interleave_over"}


def _rule(folder: Path, *, shop: int = 160, own: int = 12, **settings: Any) -> MixtureLeavesRowsOut:
    """The rule on two data sets of so many rows."""
    num_samples = settings.pop("num_samples", None)
    info: dict[str, Any] = {name: {"file_name": f"{name}.jsonl"} for name in ("shop", "own")}
    if num_samples is not None:
        info["own"]["num_samples"] = num_samples
    data = folder / "data"
    data.mkdir()
    (data / "dataset_info.json").write_text(json.dumps(info), encoding="utf-8")
    for name, rows in (("shop", shop), ("own", own)):
        lines = [json.dumps({"instruction": f"Q {n}?", "output": f"A {n}."}) for n in range(rows)]
        (data / f"{name}.jsonl").write_text("\n".join(lines), encoding="utf-8")
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump({**SETTINGS, **settings}), encoding="utf-8")
    return MixtureLeavesRowsOut(read_config(path))


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (
            UNDER,
            "ends when own has no rows left: an epoch uses only about 12 of the 160 rows of shop",
        ),
        ({**UNDER, "interleave_probs": "0.6,0.4"}, "about 18 of the 160 rows of shop"),
        ({**UNDER, "max_samples": 100}, "about 12 of the 100 rows of shop"),
        (OVER, "uses each of the 12 rows of own about 13 times"),
        ({**OVER, "interleave_probs": [0.1, 0.9]}, "each of the 12 rows of own about 120 times"),
    ],
)
def test_mixtures_that_leave_rows_out_or_repeat_them(
    settings: dict[str, Any], says: str, tmp_path: Path
) -> None:
    (found,) = _rule(tmp_path, **settings).findings()
    assert says in found.message


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"mix_strategy": "interleave_once"},
        {**UNDER, "interleave_probs": "0.93,0.07"},
        {**OVER, "interleave_probs": "0.9,0.1"},
        # Of each set no more rows than the small one has.
        {**UNDER, "max_samples": 12},
        {**OVER, "max_samples": 12},
    ],
)
def test_mixtures_that_draw_all_rows(settings: dict[str, Any], tmp_path: Path) -> None:
    rule = _rule(tmp_path, **settings)
    assert rule.unmet() is None
    assert not list(rule.findings())


@pytest.mark.parametrize(
    "settings",
    [
        # `datasets` refuses these, and nothing is mixed.
        {**UNDER, "interleave_probs": "0.5,0.4"},
        {**UNDER, "interleave_probs": "0.5,0.25,0.25"},
        {**UNDER, "interleave_probs": "half,half"},
        # Rows of a set are repeated before it is mixed.
        {**UNDER, "num_samples": 160},
        {**UNDER, "dataset": "shop"},
    ],
)
def test_mixtures_of_which_nothing_is_known(settings: dict[str, Any], tmp_path: Path) -> None:
    rule = _rule(tmp_path, **settings)
    assert rule.unmet() is not None
    assert not list(rule.findings())
