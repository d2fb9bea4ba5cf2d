"""Settings under which transformers saves shards in place of weights, in every stack that saves by its Trainer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.checks.config import found
from tests.checks.config.settings import AXOLOTL, LLAMA_FACTORY, LORA, TRL
from truetune.checks.check_paths import check_paths
from truetune.settings.run_spec import RunSpec

GATHERS = "stage3_gather_16bit_weights_on_model_save"
FULL = {**LLAMA_FACTORY, "finetuning_type": "full"}
FSDP = {"fsdp": "full_shard auto_wrap"}


def _zero(stage: int = 3, **settings: Any) -> dict[str, Any]:
    """DeepSpeed's settings."""
    return {"gradient_clipping": "auto", "zero_optimization": {"stage": stage, **settings}}


@pytest.mark.parametrize(
    ("settings", "deepspeed", "is_found"),
    [
        (FULL, _zero(**{GATHERS: False}), True),
        (TRL, _zero(), True),
        (AXOLOTL, _zero(), True),
        (FULL, _zero(**{GATHERS: True}), False),
        (TRL, _zero(gather_16bit_weights_on_model_save=True), False),
        (TRL, _zero(stage3_gather_fp16_weights_on_model_save=True), False),
        (TRL, _zero(stage3_gather_fp16_weights_on_model_save=False), True),
        (TRL, _zero(2), False),
        (LLAMA_FACTORY, _zero(), False),  # an adapter is gathered by itself
        ({**AXOLOTL, **LORA}, _zero(), False),
    ],
)
def test_zero3(
    settings: dict[str, Any], deepspeed: dict[str, Any], is_found: bool, tmp_path: Path
) -> None:
    files = {"ds.json": json.dumps(deepspeed)}
    rules = found(tmp_path, {**settings, "deepspeed": "ds.json"}, files=files)
    assert ("trained-weights-not-saved" in rules) is is_found


def test_a_file_beside_merges_the_shards(tmp_path: Path) -> None:
    files = {"ds.json": json.dumps(_zero()), "merge.sh": "python out/zero_to_fp32.py out merged\n"}
    rules = found(tmp_path, {**TRL, "deepspeed": "ds.json"}, files=files)
    assert "trained-weights-not-saved" not in rules


@pytest.mark.parametrize(
    ("named", "is_found"), [("ds.json", True), ("zero3", False), ("zero2", False)]
)
def test_ms_swift(named: str, is_found: bool, tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text(json.dumps(_zero()), encoding="utf-8")
    (tmp_path / "train.sh").write_text(
        f"swift sft --model some/model --train_type full --dataset a.jsonl --deepspeed {named}\n"
    )
    rules = [one.rule for one in check_paths([str(tmp_path)], RunSpec()).findings]
    assert ("trained-weights-not-saved" in rules) is is_found


@pytest.mark.parametrize(
    ("kind", "is_found"),
    [("SHARDED_STATE_DICT", True), ("FULL_STATE_DICT", False), (None, False)],
)
@pytest.mark.parametrize("settings", [TRL, LLAMA_FACTORY])
def test_fsdp(settings: dict[str, Any], kind: str | None, is_found: bool, tmp_path: Path) -> None:
    table = {"state_dict_type": kind} if kind else {}
    rules = found(tmp_path, {**settings, **FSDP, "fsdp_config": table})
    assert ("trained-weights-not-saved" in rules) is is_found
