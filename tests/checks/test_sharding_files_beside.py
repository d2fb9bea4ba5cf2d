"""DeepSpeed and FSDP files beside a launch, and what leads to them."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.check_paths import check_paths
from truetune.checks.findings import Finding
from truetune.settings.run_spec import RunSpec

ZERO = '{"bf16": {"enabled": true}, "zero_optimization": {"stage": 3}}'
FSDP = "distributed_type: FSDP\nnum_processes: 4\nfsdp_config:\n  fsdp_version: 2\n"
TRAIN = """
from trl import SFTConfig, SFTTrainer
SFTTrainer("org/model", SFTConfig("out"), train_dataset=rows).train()
"""
LOOP = """
import torch
for batch in loader:
    model(**batch).loss.backward()
"""
TORCHRUN = "torchrun --nproc_per_node 4 train.py\n"
ACCELERATE = "accelerate launch --num_processes 4 train.py\n"
PLAIN_LOG = """Distributed environment: DistributedType.MULTI_GPU  Backend: nccl
Num processes: 4
{'loss': 1.2, 'epoch': 0.1}
"""
MEMORY_LOG = """Distributed environment: DistributedType.MULTI_GPU  Backend: nccl
trainable params: 8,030,261,248 || all params: 8,030,261,248 || trainable%: 100.0
[rank0]: Traceback (most recent call last):
[rank0]:   File "/p/train.py", line 3, in <module>
[rank0]:     trainer.train()
[rank0]:   File "/v/lib/python3.12/site-packages/torch/autograd/graph.py", line 829, in _engine_run_backward
[rank0]:     return Variable._execution_engine.run_backward(
[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 112.00 MiB. GPU 0 has a total capacity of \
44.39 GiB of which 57.31 MiB is free. Including non-PyTorch memory, this process has 44.33 GiB memory in use. Of the \
allocated memory 43.31 GiB is allocated by PyTorch, and 141.70 MiB is reserved by PyTorch but unallocated.
"""


def write(folder: Path, files: dict[str, str]) -> tuple[Finding, ...]:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return check_paths([folder], RunSpec()).findings


def found(folder: Path, files: dict[str, str]) -> list[Finding]:
    return [one for one in write(folder, files) if one.code == "CMD137"]


@pytest.mark.parametrize(
    ("files", "severity", "part"),
    [
        (
            {"ds.json": ZERO, "run.sh": "export DS_FILE=ds.json\n" + TORCHRUN},
            "warning",
            "only the variable DS_FILE names it (run.sh:1)",
        ),
        ({"ds.json": ZERO, "run.sh": TORCHRUN}, "info", "names it"),
        ({"conf/zero3.json": ZERO, "run.sh": ACCELERATE, "a.log": PLAIN_LOG}, "warning", "a.log"),
        ({"acc.yaml": FSDP, "run.sh": ACCELERATE, "a.log": PLAIN_LOG}, "warning", "(FSDP)"),
        ({"ds.json": ZERO, "run.sh": ACCELERATE}, "info", "plain DDP"),
        (
            {
                "ds.json": ZERO,
                "job.sbatch": "#!/bin/bash\n#SBATCH --gres=gpu:4\n# ZeRO-3 by ds.json\n"
                "CONFIG_OF_ZERO=ds.json\nsrun " + TORCHRUN,
            },
            "warning",
            "CONFIG_OF_ZERO",
        ),
        (
            {"ds.json": ZERO, "run.sh": "pip install deepspeed\n" + TORCHRUN, "train.py": LOOP},
            "info",
            "ZeRO stage 3",
        ),
    ],
)
def test_files_that_nothing_leads_to(
    tmp_path: Path, files: dict[str, str], severity: str, part: str
) -> None:
    (one,) = found(tmp_path, {"train.py": TRAIN, **files})
    assert one.severity == severity
    assert part in one.message


@pytest.mark.parametrize(
    "files",
    [
        {"ds.json": ZERO, "run.sh": "torchrun --nproc_per_node 4 train.py --deepspeed ds.json\n"},
        {"ds.json": ZERO, "run.sh": "accelerate launch --use_deepspeed train.py\n"},
        {
            "ds.json": ZERO,
            "run.sh": TORCHRUN,
            "train.py": TRAIN.replace('"out"', '"out", deepspeed="ds.json"'),
        },
        {
            "ds.json": ZERO,
            "run.sh": "CONFIG=ds.json\ntorchrun --nproc_per_node 4 train.py --ds $CONFIG\n",
        },
        {
            "ds.json": ZERO,
            "run.sh": "export ACCELERATE_DEEPSPEED_CONFIG_FILE=ds.json\n" + ACCELERATE,
        },
        {
            "ds.json": ZERO,
            "run.sh": "export PLAN=ds.json\n" + TORCHRUN,
            "train.py": 'import os\nplan = os.environ["PLAN"]\n' + TRAIN,
        },
        {"acc.yaml": FSDP, "run.sh": "accelerate launch --config_file acc.yaml train.py\n"},
        {"acc.yaml": FSDP, "run.sh": "accelerate launch --config_file /etc/acc.yaml train.py\n"},
        {"ds.json": ZERO, "run.sh": "torchrun --nproc_per_node 1 train.py\n"},
        {
            "ds.json": ZERO,
            "run.sh": "torchrun --nproc_per_node 4 infer.py\n",
            "infer.py": "print(1)\n",
        },
        {"ds.json": ZERO, "run.sh": "python train.py\n"},
        {"other.json": '{"zero_optimization": {"stage": 0}}', "run.sh": TORCHRUN},
        {"ds.json": ZERO, "run.sh": TORCHRUN + "deepspeed train.py --deepspeed_config ds.json\n"},
    ],
)
def test_files_that_are_read(tmp_path: Path, files: dict[str, str]) -> None:
    assert not found(tmp_path, {"train.py": TRAIN, **files})


def test_memory_that_the_file_was_to_save(tmp_path: Path) -> None:
    files = {"train.py": TRAIN, "ds.json": ZERO, "run.sh": ACCELERATE, "train.log": MEMORY_LOG}
    findings = write(tmp_path, files)
    first, second = [one for one in findings if one.code in ("CMD137", "LOG030")]
    assert first.code == "CMD137"
    assert first.severity == "error"
    assert str(second.remedy).startswith(
        "start the training with `accelerate launch --use_deepspeed"
    )
    assert "shorter rows" not in str(second.remedy)
    assert not any("more rows or longer rows" in one for one in second.evidence)


def test_states_that_exceed_the_gpu(tmp_path: Path) -> None:
    train = TRAIN.replace(
        '"out"', '"out", per_device_train_batch_size=1, gradient_checkpointing=True'
    )
    findings = write(tmp_path, {"train.py": train, "train.log": MEMORY_LOG})
    (one,) = [one for one in findings if one.code == "LOG030"]
    assert "45 GiB at least, more than the GPU has" in str(one.remedy)
    assert "shorter rows" not in str(one.remedy)
