"""What launches share out, and how much of a GPU DeepSpeed's buffers take."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from truetune.checks.check_paths import check_paths
from truetune.settings.run_spec import RunSpec

ACCELERATE = """
distributed_type: FSDP
num_processes: {processes}
fsdp_config:
  fsdp_version: {version}
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_sharding_strategy: {strategy}
"""


def found(folder: Path, files: dict[str, str], code: str) -> list[str]:
    """What a rule says of a folder with these files."""
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    findings = check_paths([folder], RunSpec()).findings
    return [one.message for one in findings if one.code == code]


def fsdp(strategy: str, processes: int = 4, version: int = 1) -> dict[str, str]:
    """A launch with a file of accelerate's."""
    text = ACCELERATE.format(strategy=strategy, processes=processes, version=version)
    return {"fsdp.yaml": text, "run.sh": "accelerate launch --config_file fsdp.yaml train.py\n"}


@pytest.mark.parametrize(
    ("files", "count"),
    [
        (fsdp("NO_SHARD"), 1),
        (fsdp("3"), 1),
        (
            {
                "run.sh": "accelerate launch --use_fsdp --num_processes 8 --fsdp_sharding_strategy NO_SHARD t.py\n"
            },
            1,
        ),
        ({"run.sh": "accelerate launch --use_fsdp --fsdp_sharding_strategy 3 t.py --model m\n"}, 1),
        (
            {
                "job.sbatch": "#!/bin/bash\n#SBATCH --gres=gpu:4\n"
                "srun accelerate launch --use_fsdp --fsdp_sharding_strategy=NO_SHARD t.py\n"
            },
            1,
        ),
        (fsdp("FULL_SHARD"), 0),
        (fsdp("SHARD_GRAD_OP"), 0),
        (fsdp("1"), 0),
        (fsdp("NO_SHARD", processes=1), 0),
        (fsdp("NO_SHARD", version=2), 0),
        ({"run.sh": "accelerate launch --num_processes 4 t.py\n"}, 0),
    ],
)
def test_a_strategy_that_shards_nothing(tmp_path: Path, files: dict[str, str], count: int) -> None:
    assert len(found(tmp_path, files, "CMD130")) == count


def deepspeed(**zero: Any) -> dict[str, str]:
    """A launch with a DeepSpeed file."""
    text = json.dumps({"bf16": {"enabled": True}, "zero_optimization": zero}, indent=1)
    return {"ds.json": text, "run.sh": "deepspeed --num_gpus 8 train.py --deepspeed ds.json\n"}


@pytest.mark.parametrize(
    ("files", "said"),
    [
        (
            deepspeed(stage=2, overlap_comm=True, reduce_bucket_size=5e9),
            "2 gradient buffers of 5,000,000,000 elements: 18.6 GiB",
        ),
        (deepspeed(stage=2, reduce_bucket_size=5e9), "1 gradient buffer of"),
        (deepspeed(stage=1, overlap_comm=True, reduce_bucket_size=2000000000), "7.5 GiB"),
        (deepspeed(stage=3, overlap_comm=True, reduce_bucket_size=5e9), "9.3 GiB"),
        (
            {
                **deepspeed(stage=2, reduce_bucket_size=5e9),
                "run.sh": "torchrun --nproc_per_node 4 train.py --deepspeed ds.json\n",
            },
            "9.3 GiB",
        ),
        (deepspeed(stage=2, overlap_comm=True, reduce_bucket_size=5e8), ""),
        (deepspeed(stage=2, overlap_comm=True, reduce_bucket_size="auto"), ""),
        (deepspeed(stage=2, overlap_comm=True), ""),
        (deepspeed(stage=2, contiguous_gradients=False, reduce_bucket_size=5e9), ""),
        (deepspeed(stage=0, reduce_bucket_size=5e9), ""),
        (deepspeed(stage=2, overlap_comm=True, reduce_bucket_size=1e9), ""),
    ],
)
def test_buffers_of_gradients(tmp_path: Path, files: dict[str, str], said: str) -> None:
    messages = found(tmp_path, files, "CMD131")
    assert [said in one for one in messages] == ([True] if said else [])
