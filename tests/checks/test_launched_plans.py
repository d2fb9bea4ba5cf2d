"""Plans of scripts whose launch stands beside them, and of scripts that stand alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.memory import SHAPES
from truetune.checks.plan_memory import plan

SCRIPT = """
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B", torch_dtype="bfloat16")
args = TrainingArguments(output_dir="o", per_device_train_batch_size=1, bf16=True)
Trainer(model=model, args=args, train_dataset=rows).train()
"""
ZERO = "distributed_type: DEEPSPEED\ndeepspeed_config:\n  deepspeed_config_file: ds.json\n"
STAGE_3 = '{"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}}'
FSDP = "distributed_type: FSDP\nfsdp_config:\n  fsdp_activation_checkpointing: true\n"
MACHINES = "num_machines: 1\nnum_processes: 4\n"
JOB = "#!/bin/bash\n#SBATCH --nodes=1\nsrun accelerate launch --config_file a.yaml train.py\n"


def planned(folder: Path, files: dict[str, str]) -> tuple[float, str]:
    """GiB at the peak on each GPU, and the notes."""
    for name, text in {"train.py": SCRIPT, **files}.items():
        (folder / name).write_text(text)
    result = plan(folder / "train.py", gpu_memory="40GB", length=512)
    return result.estimate.peak.total, " | ".join(result.notes)


@pytest.mark.parametrize(
    ("files", "said"),
    [
        (
            {"job.sbatch": JOB, "a.yaml": ZERO + MACHINES, "ds.json": STAGE_3},
            "job.sbatch:3 starts it: 4 processes, ZeRO-3, the optimizer on the CPU",
        ),
        (
            {"run.sh": "deepspeed --num_gpus 4 train.py --deepspeed ds.json\n", "ds.json": STAGE_3},
            "4 processes, ZeRO-3",
        ),
        ({"run.sh": "torchrun --nproc_per_node 4 train.py\n"}, "run.sh:1 starts it: 4 processes"),
        ({"job.sbatch": JOB, "a.yaml": FSDP + MACHINES}, "4 processes, FSDP"),
        (
            {"job.sbatch": JOB, "a.yaml": FSDP + "  fsdp_auto_wrap_policy: NO_WRAP\n" + MACHINES},
            "makes one unit of the model",
        ),
    ],
)
def test_a_plan_reads_the_launch_beside_the_script(
    tmp_path: Path, files: dict[str, str], said: str
) -> None:
    assert said in planned(tmp_path, files)[1]


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"run.sh": "torchrun --nproc_per_node 4 other.py\n"},
        {"a.sh": "torchrun --nproc_per_node 4 train.py\n", "b.sh": "torchrun train.py\n"},
        {"run.sh": "torchrun --nproc_per_node $GPUS train.py\n"},
        {"run.sh": "python train.py\n"},
    ],
)
def test_a_plan_of_one_process(tmp_path: Path, files: dict[str, str]) -> None:
    assert "starts it" not in planned(tmp_path, files)[1]


def test_what_is_shared_out_needs_less_of_each_gpu(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "four").mkdir()
    alone, _ = planned(tmp_path / "one", {})
    files = {"job.sbatch": JOB, "a.yaml": ZERO + MACHINES, "ds.json": STAGE_3}
    assert planned(tmp_path / "four", files)[0] < 0.5 * alone


SETTINGS = """\
base_model: ./model
sequence_len: 512
micro_batch_size: 1
adapter: lora
lora_r: 8
lora_target_linear: true
bf16: true
"""
FULL_GPU = (
    "Traceback (most recent call last):\n"
    '  File "train.py", line 3, in <module>\n'
    "    trainer.train()\n"
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.03 GiB. GPU 0 has a total"
    " capacity of 23.53 GiB of which 1.12 GiB is free.\n"
)


@pytest.mark.parametrize(("text", "is_said"), [(FULL_GPU, True), ("{'loss': 1.2}\n", False)])
def test_a_log_beside_that_ran_out_of_memory(text: str, is_said: bool, tmp_path: Path) -> None:
    (tmp_path / "lora.yaml").write_text(SETTINGS, encoding="utf-8")
    (tmp_path / "train.log").write_text(text, encoding="utf-8")
    # Neither is a log, and a corpus is not read to its end for one.
    (tmp_path / "runs.log").mkdir()
    (tmp_path / "corpus.txt").write_text("words of a corpus\n" * 9, encoding="utf-8")
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text(json.dumps(SHAPES["llama-3.1-8b"]), encoding="utf-8")
    notes = plan(str(tmp_path / "lora.yaml"), gpu_memory="24GB").notes
    assert any("train.log beside it ends in an out-of-memory error" in note for note in notes) is (
        is_said
    )
