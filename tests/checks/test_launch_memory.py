"""What the files of a launch say about memory: units of FSDP, states on the CPU, weights loaded in float32."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checks.test_files_beside_logs import STEP, failed, found, words
from truetune.checks.lint import lint

TRAINER = """
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
model = AutoModelForCausalLM.from_pretrained("{model}")
args = TrainingArguments(output_dir="o", per_device_train_batch_size=1{settings})
Trainer(model=model, args=args, train_dataset=rows).train()
"""
SCRIPT = TRAINER.format(model="meta-llama/Llama-3.1-8B", settings="")
FSDP = (
    "distributed_type: FSDP\n"
    "fsdp_config:\n"
    "  {}\n"
    "  fsdp_sharding_strategy: {}\n"
    "num_machines: 1\n"
    "num_processes: 4\n"
)
ONE_UNIT = FSDP.format("fsdp_auto_wrap_policy: NO_WRAP", "FULL_SHARD")
BY_LAYER = FSDP.format("fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP", "FULL_SHARD")
BY_SIZE = FSDP.format(
    "fsdp_auto_wrap_policy: SIZE_BASED_WRAP\n  fsdp_min_num_params: {}", "FULL_SHARD"
)
UNITS = [
    (
        "torch/distributed/fsdp/_flat_param.py",
        "unshard",
        "self._alloc_padded_unsharded_flat_param()",
    )
]
LAUNCH = "accelerate launch --config_file f.yaml train.py\n"


@pytest.mark.parametrize(
    ("asked", "files", "said"),
    [
        pytest.param(
            "14.96 GiB",
            {"f.yaml": ONE_UNIT, "train.py": SCRIPT},
            "fsdp_auto_wrap_policy: NO_WRAP (f.yaml:3) makes the whole model one unit",
            id="weights of 2 bytes",
        ),
        pytest.param(
            "29.92 GiB",
            {"f.yaml": ONE_UNIT, "train.py": SCRIPT},
            "at 4 bytes each",
            id="weights of 4 bytes",
        ),
        pytest.param(
            "14.96 GiB",
            {"f.yaml": BY_SIZE.format(10**10), "train.py": SCRIPT},
            "fsdp_min_num_params: 10000000000",
            id="units larger than the model",
        ),
        pytest.param(
            "14.19 GiB",
            {
                "f.yaml": FSDP.format("fsdp_auto_wrap_policy: NO_WRAP", "1"),
                "train.py": TRAINER.format(model="Qwen/Qwen2.5-7B", settings=""),
            },
            "one unit of FSDP",
            id="the strategy by its number",
        ),
        pytest.param(
            "14.96 GiB", {"train.py": SCRIPT}, "let FSDP wrap each layer", id="no file says it"
        ),
    ],
)
def test_a_tensor_of_the_whole_model_is_no_logits(
    tmp_path: Path, asked: str, files: dict[str, str], said: str
) -> None:
    told = words(found(tmp_path, {"run.log": failed(STEP, asked), **files}), "LOG030")
    assert said in told
    assert "all weights of" in told
    assert "logits (rows" not in told
    assert "gradient_checkpointing" not in told


@pytest.mark.parametrize(
    ("asked", "files"),
    [
        pytest.param("16.00 GiB", {"f.yaml": ONE_UNIT, "train.py": SCRIPT}, id="another size"),
        pytest.param("14.96 GiB", {"f.yaml": ONE_UNIT}, id="no model is known"),
        pytest.param("1.96 GiB", {"f.yaml": BY_LAYER, "train.py": SCRIPT}, id="a layer at a time"),
        pytest.param(
            "1.96 GiB",
            {"f.yaml": BY_SIZE.format(10**8), "train.py": SCRIPT},
            id="units smaller than the model",
        ),
        pytest.param(
            "1.96 GiB",
            {
                "f.yaml": FSDP.format("fsdp_auto_wrap_policy: NO_WRAP", "NO_SHARD"),
                "train.py": SCRIPT,
            },
            id="nothing is sharded",
        ),
    ],
)
def test_other_tensors_are_not_called_the_model(
    tmp_path: Path, asked: str, files: dict[str, str]
) -> None:
    told = words(found(tmp_path, {"run.log": failed(STEP, asked), **files}), "LOG030")
    assert told
    assert "all weights of" not in told
    assert "one unit" not in told


def test_frames_of_fsdp_show_the_unit_without_the_size(tmp_path: Path) -> None:
    files = {"run.log": failed([*STEP, *UNITS], "3.10 GiB"), "f.yaml": ONE_UNIT, "train.py": SCRIPT}
    assert "one unit of FSDP" in words(found(tmp_path, files), "LOG030")


def test_checkpointing_of_the_launcher_counts(tmp_path: Path) -> None:
    recomputed = BY_LAYER.replace(
        "fsdp_config:\n", "fsdp_config:\n  fsdp_activation_checkpointing: true\n"
    )
    files = {"run.log": failed(STEP), "train.py": SCRIPT}
    assert "turn gradient_checkpointing on" in words(found(tmp_path, files), "LOG030")
    told = words(found(tmp_path, {**files, "f.yaml": recomputed}), "LOG030")
    assert "turn gradient_checkpointing on" not in told


def units(folder: Path, files: dict[str, str]) -> list[str]:
    """What CMD094 says of a job."""
    for name, text in files.items():
        (folder / name).write_text(text)
    return [one.message for one in lint([folder / "run.sh"], select=["CMD094"]).findings]


@pytest.mark.parametrize(
    "files",
    [
        pytest.param({"run.sh": LAUNCH, "f.yaml": ONE_UNIT}, id="a file"),
        pytest.param(
            {"run.sh": LAUNCH, "f.yaml": ONE_UNIT.replace("fsdp_auto", "auto")},
            id="without the prefix",
        ),
        pytest.param(
            {"run.sh": LAUNCH, "f.yaml": BY_SIZE.format(9 * 10**9), "train.py": SCRIPT},
            id="by size",
        ),
        pytest.param(
            {
                "run.sh": "accelerate launch --use_fsdp --fsdp_auto_wrap_policy SIZE_BASED_WRAP"
                " --fsdp_min_num_params 20000000000 train.py --model_name_or_path Qwen/Qwen2.5-7B\n"
            },
            id="by size, options",
        ),
        pytest.param(
            {
                "run.sh": LAUNCH,
                "f.yaml": "distributed_type: FSDP\n"
                "fsdp_config:\n"
                "  fsdp_version: 2\n"
                "  fsdp_auto_wrap_policy: NO_WRAP\n"
                "  fsdp_reshard_after_forward: true\n",
            },
            id="FSDP2",
        ),
    ],
)
def test_one_unit_of_the_whole_model(tmp_path: Path, files: dict[str, str]) -> None:
    assert len(units(tmp_path, files)) == 1


@pytest.mark.parametrize(
    "files",
    [
        pytest.param({"run.sh": LAUNCH, "f.yaml": BY_LAYER}, id="by layer"),
        pytest.param(
            {"run.sh": LAUNCH, "f.yaml": BY_SIZE.format(10**8), "train.py": SCRIPT},
            id="small units",
        ),
        pytest.param(
            {"run.sh": LAUNCH, "f.yaml": BY_SIZE.format(9 * 10**9)}, id="no model is known"
        ),
        pytest.param(
            {
                "run.sh": LAUNCH,
                "f.yaml": FSDP.format("fsdp_auto_wrap_policy: NO_WRAP", "SHARD_GRAD_OP"),
            },
            id="weights stay gathered",
        ),
        pytest.param(
            {"run.sh": LAUNCH, "f.yaml": FSDP.format("fsdp_auto_wrap_policy: NO_WRAP", "3")},
            id="NO_SHARD",
        ),
        pytest.param(
            {"run.sh": LAUNCH, "f.yaml": FSDP.format("fsdp_offload_params: false", "FULL_SHARD")},
            id="no policy is written",
        ),
        pytest.param(
            {"run.sh": "accelerate launch --config_file other.yaml train.py\n", "f.yaml": ONE_UNIT},
            id="another file",
        ),
    ],
)
def test_units_that_are_smaller_than_the_model(tmp_path: Path, files: dict[str, str]) -> None:
    assert units(tmp_path, files) == []


JOB = (
    "#!/bin/bash\n"
    "#SBATCH --nodes={nodes}\n"
    "#SBATCH --mem={mem}\n"
    "srun accelerate launch --config_file a.yaml train.py\n"
)
ZERO = (
    "distributed_type: DEEPSPEED\n"
    "deepspeed_config:\n"
    "  deepspeed_config_file: ds.json\n"
    "num_machines: 1\n"
    "num_processes: 4\n"
)
INLINE = (
    "distributed_type: DEEPSPEED\n"
    "deepspeed_config:\n"
    "  zero_stage: 2\n"
    "  offload_optimizer_device: cpu\n"
    "num_machines: 1\n"
    "num_processes: 4\n"
)
OFFLOAD = '{\n"zero_optimization": {\n"stage": 3,\n"offload_optimizer": {\n"device": "cpu"\n}}}\n'
PARAMS = (
    "distributed_type: FSDP\n"
    "fsdp_config:\n"
    "  fsdp_offload_params: true\n"
    "num_machines: 1\n"
    "num_processes: 4\n"
)
DOCKER = (
    "docker run --gpus all -m 64g -v .:/w image accelerate launch --config_file a.yaml train.py\n"
)


def offloaded(folder: Path, files: dict[str, str]) -> list[str]:
    """What CMD095 says of a job."""
    for name, text in files.items():
        (folder / name).write_text(text)
    commands = next(name for name in files if name.endswith((".sh", ".sbatch")))
    return [one.message for one in lint([folder / commands], select=["CMD095"]).findings]


@pytest.mark.parametrize(
    "files",
    [
        pytest.param(
            {
                "j.sbatch": JOB.format(nodes=1, mem="64G"),
                "a.yaml": ZERO,
                "ds.json": OFFLOAD,
                "train.py": SCRIPT,
            },
            id="ZeRO-3",
        ),
        pytest.param(
            {"j.sbatch": JOB.format(nodes=1, mem="65536"), "a.yaml": INLINE, "train.py": SCRIPT},
            id="ZeRO-2 of accelerate, MiB",
        ),
        pytest.param(
            {"j.sbatch": JOB.format(nodes=1, mem="80000M"), "a.yaml": PARAMS, "train.py": SCRIPT},
            id="FSDP",
        ),
        pytest.param({"run.sh": DOCKER, "a.yaml": INLINE, "train.py": SCRIPT}, id="a container"),
        pytest.param(
            {
                "run.sh": "docker run --memory=48g image deepspeed --num_gpus 4 train.py --deepspeed ds.json"
                " --model_name_or_path Qwen/Qwen2.5-7B\n",
                "ds.json": OFFLOAD,
            },
            id="DeepSpeed's launcher",
        ),
    ],
)
def test_states_that_exceed_the_memory(tmp_path: Path, files: dict[str, str]) -> None:
    assert len(offloaded(tmp_path, files)) == 1


@pytest.mark.parametrize(
    "files",
    [
        pytest.param(
            {
                "j.sbatch": JOB.format(nodes=1, mem="200G"),
                "a.yaml": ZERO,
                "ds.json": OFFLOAD,
                "train.py": SCRIPT,
            },
            id="enough memory",
        ),
        pytest.param(
            {"j.sbatch": JOB.format(nodes=1, mem="0"), "a.yaml": INLINE, "train.py": SCRIPT},
            id="all of the node",
        ),
        pytest.param(
            {"j.sbatch": JOB.format(nodes=4, mem="64G"), "a.yaml": INLINE, "train.py": SCRIPT},
            id="several nodes",
        ),
        pytest.param(
            {
                "j.sbatch": JOB.format(nodes=1, mem="64G"),
                "a.yaml": INLINE.replace("cpu", "none"),
                "train.py": SCRIPT,
            },
            id="no offload",
        ),
        pytest.param(
            {
                "j.sbatch": JOB.format(nodes=1, mem="64G"),
                "a.yaml": INLINE,
                "train.py": SCRIPT.replace(
                    "Trainer(",
                    "from peft import get_peft_model\nmodel = get_peft_model(model, c)\nTrainer(",
                ),
            },
            id="an adapter",
        ),
        pytest.param(
            {
                "j.sbatch": JOB.format(nodes=1, mem="64G"),
                "a.yaml": INLINE,
                "train.py": SCRIPT.replace("3.1-8B", "3.2-1B"),
            },
            id="a small model",
        ),
        pytest.param(
            {
                "j.sbatch": JOB.format(nodes=1, mem="64G"),
                "a.yaml": INLINE,
                "train.py": TRAINER.format(
                    model="meta-llama/Llama-3.1-8B", settings=", optim='adafactor'"
                ),
            },
            id="another optimizer",
        ),
        pytest.param(
            {
                "run.sh": "docker run --gpus all image accelerate launch --config_file a.yaml train.py\n",
                "a.yaml": INLINE,
                "train.py": SCRIPT,
            },
            id="no limit",
        ),
    ],
)
def test_states_that_fit_or_are_not_known(tmp_path: Path, files: dict[str, str]) -> None:
    assert offloaded(tmp_path, files) == []


SLURM = "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0. Some of the step tasks have been OOM Killed.\n"
KERNEL = (
    "Killed\n"
    "[Tue Aug  5 14:21:07 2025] Out of memory: Killed process 41187 (python)"
    " total-vm:153912388kB, anon-rss:{}kB, file-rss:8192kB\n"
)
MERGE = """
from peft import PeftModel
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained({name}{settings})
PeftModel.from_pretrained(model, "lora").merge_and_unload().save_pretrained("out")
"""
BASE = '"Qwen/Qwen2.5-32B-Instruct"'
PINNED = "transformers==4.53.3\n"


@pytest.mark.parametrize(
    ("log", "files", "said"),
    [
        pytest.param(
            SLURM,
            {
                "j.sbatch": JOB.format(nodes=1, mem="64G"),
                "a.yaml": ZERO,
                "ds.json": OFFLOAD,
                "train.py": SCRIPT,
            },
            "90 GiB for meta-llama/Llama-3.1-8B (12 bytes per weight, gradients not counted),"
            " more than --mem=64G (j.sbatch:3)",
            id="states",
        ),
        pytest.param(
            "Killed\n",
            {"run.sh": DOCKER, "a.yaml": INLINE, "train.py": SCRIPT},
            "more than -m 64g (run.sh:1)",
            id="states in a container",
        ),
        pytest.param(
            KERNEL.format(125402116),
            {"m.py": MERGE.format(name=BASE, settings=""), "requirements.txt": PINNED},
            "loads it as float32, 122 GiB",
            id="a merge",
        ),
        pytest.param(
            KERNEL.format(125402116),
            {
                "m.py": MERGE.format(name="config.base", settings=', device_map="cpu"'),
                "requirements.txt": PINNED,
                "lora/adapter_config.json": '{"base_model_name_or_path": "Qwen/Qwen2.5-32B-Instruct",'
                ' "peft_type": "LORA", "r": 8}',
            },
            "used 120 GiB when the kernel killed it",
            id="the base of an adapter",
        ),
        pytest.param(
            "Killed\n",
            {
                "m.py": MERGE.format(name=BASE, settings=""),
                "requirements.txt": PINNED,
                "j.sbatch": "#!/bin/bash\n#SBATCH --mem=100G\npython m.py\n",
            },
            "--mem=100G (j.sbatch:2) allows 100 GiB",
            id="a job",
        ),
    ],
)
def test_what_filled_the_machine(
    tmp_path: Path, log: str, files: dict[str, str], said: str
) -> None:
    told = words(found(tmp_path, {"run.log": log, **files}), "LOG031")
    assert said in told
    assert "cause:" not in told
    assert "dmesg" not in told
    assert "dataset_num_proc" not in told


@pytest.mark.parametrize(
    ("log", "files"),
    [
        pytest.param(
            SLURM,
            {
                "j.sbatch": JOB.format(nodes=1, mem="300G"),
                "a.yaml": ZERO,
                "ds.json": OFFLOAD,
                "train.py": SCRIPT,
            },
            id="enough for the states",
        ),
        pytest.param(
            SLURM,
            {
                "j.sbatch": JOB.format(nodes=2, mem="64G"),
                "a.yaml": ZERO,
                "ds.json": OFFLOAD,
                "train.py": SCRIPT,
            },
            id="states on several nodes",
        ),
        pytest.param(
            "Killed\n",
            {
                "m.py": MERGE.format(name=BASE, settings=", torch_dtype='auto'"),
                "requirements.txt": PINNED,
            },
            id="a type is named",
        ),
        pytest.param(
            "Killed\n",
            {
                "m.py": MERGE.format(name=BASE, settings=""),
                "requirements.txt": "transformers==5.2.0\n",
            },
            id="a release that takes the checkpoint's type",
        ),
        pytest.param(
            "{'loss': 2.3, 'epoch': 0.1}\nKilled\n",
            {"m.py": MERGE.format(name=BASE, settings=""), "requirements.txt": PINNED},
            id="steps were made",
        ),
        pytest.param(
            KERNEL.format(60000000),
            {"m.py": MERGE.format(name=BASE, settings=""), "requirements.txt": PINNED},
            id="the process held half of it",
        ),
    ],
)
def test_what_is_not_proved_stays_a_list(tmp_path: Path, log: str, files: dict[str, str]) -> None:
    assert "cause:" in words(found(tmp_path, {"run.log": log, **files}), "LOG031")
