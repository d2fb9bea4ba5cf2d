"""Runs that are slow because of what they do besides training, and folders with parts that can't be read."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from truetune.checks.check_paths import check_paths
from truetune.checks.diagnose_log import diagnose
from truetune.logs.read_run_log import read_run
from truetune.logs.share_of_time_beside_training import measure_time_shares
from truetune.parsing.read_nvidia_smi_output import MIB, read_nvidia_smi
from truetune.settings.run_spec import RunSpec

SMI = """\
Tue Mar 17 09:41:22 2026
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 570.133.20             Driver Version: 570.133.20     CUDA Version: 12.8     |
|-----------------------------------------+------------------------+----------------------+
|   0  {name}          On  |   00000000:07:00.0 Off |                    0 |
| N/A   34C    P0            96W /  400W  |   12874MiB /  {total}MiB |     11%      Default |
|   1  {name}          On  |   00000000:0F:00.0 Off |                    0 |
| N/A   33C    P0            92W /  400W  |   12790MiB /  {total}MiB |      8%      Default |
+-----------------------------------------+------------------------+----------------------+
"""
AXOLOTL = """\
base_model: Qwen/Qwen2.5-7B-Instruct
datasets: [{path: rows.jsonl, type: chat_template}]
adapter: lora
lora_r: 16
lora_alpha: 32
lora_target_linear: true
micro_batch_size: 2
gradient_accumulation_steps: 4
gradient_checkpointing: true
num_epochs: 2
learning_rate: 0.0001
bf16: true
sequence_len: 2048
"""
ZERO3 = {
    "zero_optimization": {
        "stage": 3,
        "offload_param": {"device": "cpu"},
        "offload_optimizer": {"device": "cpu"},
    }
}
TRL = """\
import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM
from trl import SFTConfig, SFTTrainer
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B-Instruct", dtype=torch.bfloat16)
args = SFTConfig(output_dir="o", per_device_train_batch_size=2, max_length=2048, bf16=True)
peft = LoraConfig(r=16, target_modules="all-linear")
trainer = SFTTrainer(model=model, args=args, train_dataset=rows, peft_config=peft)
trainer.train()
"""


def loop_log(every: int, seconds: int, event: str, clock: str = "%Y-%m-%d %H:%M:%S") -> str:
    """The log of a loop: 400 steps of 4 s, and an event of so many seconds after every so many steps."""
    time, lines = datetime(2026, 1, 1, 22, 0, 0), []
    for step in range(10, 401, 10):
        time += timedelta(seconds=40)
        lines.append(f"{time.strftime(clock)} INFO step {step}/400 loss {2.5 - step / 500:.4f}")
        if step % every == 0:
            time += timedelta(seconds=seconds)
            lines.append(f"{time.strftime(clock)} INFO step {step} {event.format(seconds)}")
    return "\n".join(lines) + "\n"


def found(path: Path) -> dict[str, str]:
    """Code -> message of what a check of a folder finds."""
    report = check_paths([path], RunSpec())
    return {finding.code: finding.message for finding in report.findings}


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (loop_log(40, 300, "eval_loss 2.1"), "evaluation"),
        (loop_log(40, 300, "val loss 2.1", "%H:%M:%S"), "evaluation"),
        (loop_log(40, 300, "validation loss 2.1, took {}.4 s"), "evaluation"),
        (loop_log(20, 100, "saved checkpoint in {}.2s"), "saving"),
        (loop_log(40, 300, "generated 50 samples in {} s"), "sampling"),
    ],
)
def test_the_time_of_a_loop_that_is_no_training(text: str, kind: str, tmp_path: Path) -> None:
    (tmp_path / "run.log").write_text(text, encoding="utf-8")
    (finding,) = (f for f in diagnose(tmp_path / "run.log").findings if f.code == "LOG085")
    assert finding.message.startswith(kind)
    shares = measure_time_shares(read_run(tmp_path / "run.log"))
    assert shares is not None
    assert shares.step_seconds == pytest.approx(4, rel=0.25)


@pytest.mark.parametrize(
    "text",
    [
        loop_log(200, 30, "eval_loss 2.1"),
        loop_log(200, 10, "validation loss 2.1, took {}.4 s"),
        loop_log(200, 20, "saved checkpoint in {}.2s"),
        "loading the validation set took 9000 s\n" + loop_log(400, 10, "eval_loss 2.0"),
        loop_log(400, 20, "done"),
    ],
)
def test_a_loop_that_trains_most_of_the_time(text: str, tmp_path: Path) -> None:
    (tmp_path / "run.log").write_text(text, encoding="utf-8")
    assert "LOG085" not in [f.code for f in diagnose(tmp_path / "run.log").findings]


def test_sampling_is_training_where_answers_are_rewarded(tmp_path: Path) -> None:
    lines = [
        f"{{'loss': 0.1, 'reward': 0.{n}, 'reward_std': 0.2, 'completions/mean_length': 90.0, 'epoch': 0.{n}}}\n"
        f"step {n} generated 64 completions in 300 s\n"
        for n in range(1, 10)
    ]
    text = "".join(lines) + "{'train_runtime': 4000.0, 'train_loss': 0.1, 'epoch': 1.0}\n"
    (tmp_path / "run.log").write_text(text, encoding="utf-8")
    assert "LOG085" not in [f.code for f in diagnose(tmp_path / "run.log").findings]


def evaluated_run() -> str:
    """The console of a Trainer that evaluates 300 s after each 90 s of training."""
    lines = []
    for number in range(1, 11):
        gone = timedelta(seconds=390 * number)
        epoch = number * 0.04
        lines += [
            f"{{'loss': {2 - number / 20:.3f}, 'grad_norm': 0.4, 'learning_rate': 1e-05, 'epoch': {epoch:.2f}}}",
            f"{{'eval_loss': 1.4, 'eval_runtime': 300.0, 'epoch': {epoch:.2f}}}",
            f"  2%|          | {number * 10}/468 [{gone}<5:00:00, 39.00s/it]",
        ]
    return "\n".join(lines) + "\n"


def test_the_setting_is_named_and_steps_are_told_without_evaluations(tmp_path: Path) -> None:
    (tmp_path / "console.log").write_text(evaluated_run(), encoding="utf-8")
    settings = AXOLOTL + "val_set_size: 0.2\neval_steps: 10\n"
    (tmp_path / "config.yaml").write_text(settings, encoding="utf-8")
    report = check_paths([tmp_path], RunSpec())
    (finding,) = (f for f in report.findings if f.code == "LOG085")
    assert "77%" in finding.message
    assert "eval_steps=10" in [case.text for case in finding.cases]
    facts = [dict(subject.facts) for subject in report.subjects if subject.kind == "run log"]
    assert "9 s" in facts[0]["time"]


def test_a_checkpoint_without_weights_is_a_log_and_ends_nothing(tmp_path: Path) -> None:
    (tmp_path / "console.log").write_text(evaluated_run(), encoding="utf-8")
    settings = AXOLOTL + "eval_steps: 10\n"
    (tmp_path / "config.yaml").write_text(settings, encoding="utf-8")
    checkpoint = tmp_path / "checkpoint-100"
    checkpoint.mkdir()
    log = [{"loss": 2 - n / 20, "step": 10 * n} for n in range(1, 11)]
    log += [{"eval_loss": 1.4, "eval_runtime": 300.0, "step": 10 * n} for n in range(1, 11)]
    state = {"log_history": log, "global_step": 100, "max_steps": 468}
    (checkpoint / "trainer_state.json").write_text(json.dumps(state), encoding="utf-8")
    report = check_paths([tmp_path], RunSpec())
    assert "LOG085" in [finding.code for finding in report.findings]
    assert any("checkpoint-100" in part.place for part in report.not_judged)
    assert any("config.yaml" in str(subject) for subject in report.subjects)


@pytest.mark.parametrize("kind", ["empty", "broken", "images"])
def test_what_is_unreadable_in_a_folder_is_one_line(kind: str, tmp_path: Path) -> None:
    (tmp_path / "console.log").write_text(evaluated_run(), encoding="utf-8")
    folder = tmp_path / ("images" if kind == "images" else "checkpoint-5")
    folder.mkdir()
    if kind == "broken":
        (folder / "adapter_config.json").write_text("{}", encoding="utf-8")
        (folder / "adapter_model.safetensors").write_bytes(b"junk")
    if kind == "images":
        (folder / "x.png").write_bytes(bytes(range(200)))
    assert "LOG085" in found(tmp_path)


def lay_out(folder: Path, files: dict[str, object]) -> None:
    """Write files; what is no text becomes JSON."""
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        text = content if isinstance(content, str) else json.dumps(content)
        (folder / name).write_text(text, encoding="utf-8")


A100 = SMI.format(name="NVIDIA A100-SXM4-80GB", total=81920)
ACCELERATE = "accelerate launch --config_file acc.yaml train.py\n"


@pytest.mark.parametrize(
    "files",
    [
        {"c.yaml": AXOLOTL + "deepspeed: ds.json\n", "ds.json": ZERO3, "gpu.txt": A100},
        {
            "c.yaml": AXOLOTL + "deepspeed: ds/z.json\n",
            "ds/z.json": ZERO3,
            "job.slurm": "#!/bin/bash\n#SBATCH --gres=gpu:a100:4\naxolotl train c.yaml\n",
        },
        {
            "c.yaml": AXOLOTL + "fsdp: [full_shard]\nfsdp_config: {fsdp_offload_params: true}\n",
            "gpu.txt": A100,
        },
        {
            "train.py": TRL,
            "run.sh": ACCELERATE,
            "acc.yaml": "distributed_type: DEEPSPEED\nnum_processes: 4\ndeepspeed_config:\n  zero_stage: 3\n"
            "  offload_param_device: cpu\n",
            "gpu.txt": A100,
        },
        {
            "train.py": TRL,
            "run.sh": ACCELERATE,
            "acc.yaml": "distributed_type: DEEPSPEED\nnum_processes: 4\ndeepspeed_config:\n"
            "  deepspeed_config_file: ds.json\n",
            "ds.json": ZERO3,
            "gpu.txt": A100,
        },
        {
            "train.py": TRL.replace("bf16=True", 'bf16=True, deepspeed="ds.json"'),
            "ds.json": ZERO3,
            "train.log": "GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-1)\n" + evaluated_run(),
        },
    ],
)
def test_offloading_that_the_named_gpu_does_not_need(
    files: dict[str, object], tmp_path: Path
) -> None:
    lay_out(tmp_path, files)
    assert "DEV013" in found(tmp_path)


@pytest.mark.parametrize(
    "files",
    [
        {
            "c.yaml": AXOLOTL + "deepspeed: ds.json\n",
            "ds.json": {"zero_optimization": {"stage": 2}},
            "gpu.txt": A100,
        },
        {
            "c.yaml": AXOLOTL + "deepspeed: ds.json\n",
            "ds.json": ZERO3,
            "gpu.txt": SMI.format(name="NVIDIA GeForce RTX 4090", total=24564),
        },
        {
            "c.yaml": AXOLOTL.replace("2.5-7B", "2.5-72B") + "deepspeed: ds.json\n",
            "ds.json": ZERO3,
            "gpu.txt": A100,
        },
        {"c.yaml": AXOLOTL + "optimizer: paged_adamw_8bit\n", "gpu.txt": A100},
        {
            "c.yaml": AXOLOTL + "deepspeed: ds.json\n",
            "ds.json": {"zero_optimization": {"stage": 3, "offload_param": {"device": "none"}}},
            "gpu.txt": A100,
        },
    ],
)
def test_offloading_that_is_needed_or_none(files: dict[str, object], tmp_path: Path) -> None:
    lay_out(tmp_path, files)
    assert "DEV013" not in found(tmp_path)


def test_what_nvidia_smi_prints() -> None:
    first, second = read_nvidia_smi(A100)
    assert (first.name, first.busy, second.busy) == ("NVIDIA A100-SXM4-80GB", 11, 8)
    assert first.total == 81920 * MIB
    table = (
        "timestamp, index, name, utilization.gpu [%], memory.used [MiB], memory.total [MiB]\n"
        "2026/03/17 09:41:20, 0, NVIDIA L4, 0 %, 400 MiB, 23034 MiB\n"
        "2026/03/17 09:41:21, 0, NVIDIA L4, 12 %, 4000 MiB, 23034 MiB\n"
        "2026/03/17 09:41:22, 0, NVIDIA L4, 90 %, 5000 MiB, 23034 MiB\n"
        "2026/03/17 09:41:23, 0, NVIDIA L4, 93 %, 5000 MiB, 23034 MiB\n"
    )
    (gpu,) = read_nvidia_smi(table)
    # The mean since the first reading at work: a median hides what works a part of the time.
    assert (gpu.busy, gpu.used, gpu.readings) == (65, 5000 * MIB, 4)
    assert gpu.samples == (0, 12, 90, 93)
    assert read_nvidia_smi("epoch, loss\n1, 2.0\n") == ()


def test_gpus_that_wait_are_told_beside_the_log(tmp_path: Path) -> None:
    lay_out(tmp_path, {"gpu.txt": A100, "train.log": evaluated_run()})
    assert found(tmp_path)["LOG086"] == "the GPUs are at 8 to 11% utilization while the run trains"
    lay_out(tmp_path, {"gpu.txt": A100.replace(" 11%", " 96%").replace("  8%", " 97%")})
    assert "LOG086" not in found(tmp_path)
    # The run is over, and a server holds the model: nobody asks it.
    over = evaluated_run() + "{'train_runtime': 3900.0, 'train_loss': 1.2, 'epoch': 1.0}\n"
    unasked = A100.replace(" 11%", "  0%").replace("  8%", "  0%")
    lay_out(tmp_path, {"gpu.txt": unasked, "train.log": over})
    assert "LOG086" not in found(tmp_path)


def snapshots(busy: list[tuple[int, ...]], used: int = 14_000) -> str:
    """nvidia-smi's CSV of several GPUs, one snapshot after another."""
    rows = ["timestamp, index, utilization.gpu [%], memory.used [MiB], memory.total [MiB]"]
    for number, one in enumerate(busy):
        rows += [
            f"2026/03/17 09:{number:02}:21, {index}, {value} %, {used} MiB, 81920 MiB"
            for index, value in enumerate(one)
        ]
    return "\n".join(rows) + "\n"


IN_TURNS = [tuple(97 if gpu == n % 4 else 3 for gpu in range(4)) for n in range(16)]


@pytest.mark.parametrize(
    ("busy", "expected"),
    [
        (IN_TURNS, "16 of 16 readings"),
        ([(0, 0, 0, 0)] * 3 + IN_TURNS, "16 of 16 readings"),
        ([(96, 4), (2, 91)] * 8, "the 2 GPUs work one after another"),
        ([*IN_TURNS, (80, 80, 4, 4), (60, 4, 70, 4)], "16 of 18 readings"),
    ],
)
def test_gpus_that_compute_one_after_another(
    busy: list[tuple[int, ...]], expected: str, tmp_path: Path
) -> None:
    lay_out(tmp_path, {"gpu.csv": snapshots(busy), "train.log": evaluated_run()})
    message = found(tmp_path)["LOG086"]
    assert "one after another" in message
    assert expected in message


@pytest.mark.parametrize(
    "busy",
    [
        [(97, 96, 98, 97)] * 16,
        [(97, 3, 2, 3)] * 16,
        IN_TURNS[:8],
        [*IN_TURNS, *[(90, 92, 88, 95)] * 6],
        [(45, 3, 2, 3), (3, 45, 2, 3)] * 8,
    ],
)
def test_gpus_that_do_not_take_turns(busy: list[tuple[int, ...]], tmp_path: Path) -> None:
    lay_out(tmp_path, {"gpu.csv": snapshots(busy), "train.log": evaluated_run()})
    assert "one after another" not in found(tmp_path).get("LOG086", "")
