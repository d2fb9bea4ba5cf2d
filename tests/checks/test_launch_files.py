"""What the files of a launch say against one another, and launches that are near that."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from truetune.checks.lint import lint

TRAINER = "from transformers import Trainer, TrainingArguments\nTrainer(model=m, args=TrainingArguments({}))\n"
LOOP = "import deepspeed\nengine, opt, _, _ = deepspeed.initialize({})\nengine.backward(loss)\n"
ACCELERATED = (
    "from accelerate import Accelerator\nacc = Accelerator(gradient_accumulation_steps={})\n"
)
MULTI = "distributed_type: MULTI_GPU\ngpu_ids: {}\nnum_machines: 1\nnum_processes: {}\n"
FSDP = "distributed_type: FSDP\nfsdp_config:\n  fsdp_transformer_layer_cls_to_wrap: {}\nnum_processes: 8\n"
OF_DEEPSPEED = "distributed_type: DEEPSPEED\nmixed_precision: {}\n"
OF_DEEPSPEED += "deepspeed_config: {{deepspeed_config_file: ds.json}}\n"


def count(folder: Path, command: str, script: str = "", **files: str) -> int:
    """How often the rule names a fault in a command beside these files (`acc` is accelerate's YAML, `ds` the JSON)."""
    (folder / "run.sh").write_text(command + "\n", encoding="utf-8")
    (folder / "train.py").write_text(script, encoding="utf-8")
    for name, text in files.items():
        (folder / f"{name}.{'json' if name == 'ds' else 'yaml'}").write_text(text, encoding="utf-8")
    return len(lint([folder / "run.sh"], select=["CMD009"]).findings)


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        ("--per_device_train_batch_size 2", {"train_micro_batch_size_per_gpu": 8}),
        ("--learning_rate 1e-5", {"optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}}),
        ("--warmup_steps 20", {"scheduler": {"params": {"warmup_num_steps": 500}}}),
        ("--bf16", {"fp16": {"enabled": True}}),
        ("--gradient_accumulation_steps=4", {"gradient_accumulation_steps": 1}),
    ],
)
def test_a_deepspeed_file_against_the_run(
    tmp_path: Path, options: str, settings: dict[str, object]
) -> None:
    command = f"deepspeed --num_gpus 4 train.py {options} --deepspeed ds.json"
    script = TRAINER.format("'out'")
    assert count(tmp_path, command, script, ds=json.dumps(settings)) == 1
    automatic = json.dumps(dict.fromkeys(settings, "auto"))
    assert count(tmp_path, command, script, ds=automatic) == 0


def test_the_literals_of_a_script_count_where_the_command_says_nothing(tmp_path: Path) -> None:
    script = TRAINER.format("'out', per_device_train_batch_size=2, deepspeed='ds.json'")
    command = "accelerate launch --num_processes 4 train.py"
    assert count(tmp_path, command, script, ds='{"train_micro_batch_size_per_gpu": 8}') == 1
    assert count(tmp_path, command, script, ds='{"train_micro_batch_size_per_gpu": 2}') == 0
    open_ended = script.replace("=2", "=rows")
    assert count(tmp_path, command, open_ended, ds='{"train_micro_batch_size_per_gpu": 8}') == 0


def test_a_rate_that_deepspeed_takes_from_its_file(tmp_path: Path) -> None:
    settings = '{"optimizer": {"type": "AdamW", "params": {"lr": 2e-7}}}'
    command = "deepspeed train.py --deepspeed_config ds.json --lr 2e-5"
    assert count(tmp_path, command, LOOP.format("args=args, model=m"), ds=settings) == 1
    assert count(tmp_path, command, LOOP.format("model=m, optimizer=opt"), ds=settings) == 0
    assert count(tmp_path, command, LOOP.format("model=m, config=made"), ds=settings) == 0
    assert (
        count(
            tmp_path,
            command.replace("2e-5", "2e-7"),
            LOOP.format("args=args, model=m"),
            ds=settings,
        )
        == 0
    )
    assert (
        count(
            tmp_path, command.replace("2e-5", "$LR"), LOOP.format("args=args, model=m"), ds=settings
        )
        == 0
    )


@pytest.mark.parametrize(
    ("gpu_ids", "processes", "faults"), [("0,1", 8, 1), ("0,1", 1, 1), ("0,1", 2, 0), ("all", 8, 0)]
)
def test_gpus_of_accelerate(tmp_path: Path, gpu_ids: str, processes: int, faults: int) -> None:
    text = MULTI.format(gpu_ids, processes)
    assert count(tmp_path, "accelerate launch --config_file acc.yaml train.py", acc=text) == faults


def test_precisions_and_accumulation_of_accelerate(tmp_path: Path) -> None:
    command = "accelerate launch --config_file acc.yaml train.py"
    half = '{"bf16": {"enabled": true}, "gradient_accumulation_steps": 1}'
    assert count(tmp_path, command, acc=OF_DEEPSPEED.format("fp16"), ds=half) == 1
    assert count(tmp_path, command, acc=OF_DEEPSPEED.format("bf16"), ds=half) == 0
    steps = {"acc": OF_DEEPSPEED.format("bf16"), "ds": half}
    assert count(tmp_path, command, ACCELERATED.format(8), **steps) == 1
    assert count(tmp_path, command, ACCELERATED.format(1), **steps) == 0
    assert count(tmp_path, command, ACCELERATED.format("args.steps"), **steps) == 0


@pytest.mark.parametrize(
    ("layer", "model", "faults"),
    [
        ("LlamaDecoderLayer", "Qwen/Qwen2.5-7B-Instruct", 1),
        ("Qwen2DecoderLayer", "Qwen/Qwen2.5-7B-Instruct", 0),
        ("Qwen2DecoderLayer", "Qwen/Qwen3-8B", 1),
        ("LlamaDecoderLayer", "deepseek-ai/DeepSeek-R1-Distill-Llama-8B", 0),
        ("LlamaDecoderLayer", "my-own-model", 0),  # a name that says nothing
        ("MyBlock", "Qwen/Qwen3-8B", 0),  # a class of one's own
        ("Qwen2DecoderLayer", "Qwen/Qwen2.5-VL-7B-Instruct", 0),  # has an image encoder besides
    ],
)
def test_layers_that_fsdp_wraps(tmp_path: Path, layer: str, model: str, faults: int) -> None:
    command = f"accelerate launch --config_file acc.yaml train.py --model_name_or_path {model}"
    assert count(tmp_path, command, acc=FSDP.format(layer)) == faults
    script = (
        f"import transformers\nNAME = {model!r}\ntransformers.AutoModel.from_pretrained(NAME)\n"
    )
    assert count(tmp_path, "accelerate launch --config_file acc.yaml train.py", script) == faults


def test_the_config_of_a_folder_says_more_than_its_name(tmp_path: Path) -> None:
    (tmp_path / "merged").mkdir()
    (tmp_path / "merged/config.json").write_text('{"model_type": "mistral"}', encoding="utf-8")
    command = "accelerate launch --config_file acc.yaml train.py --model_name_or_path merged"
    assert count(tmp_path, command, acc=FSDP.format("LlamaDecoderLayer")) == 1
    assert count(tmp_path, command, acc=FSDP.format("MistralDecoderLayer")) == 0


@pytest.mark.parametrize(
    ("command", "faults"),
    [
        ("CUDA_VISIBLE_DEVICES=0,1,2,3 swift sft --model x --dataset d", 1),
        ("export CUDA_VISIBLE_DEVICES=0,1,2,3\nswift sft --model x --dataset d", 1),
        ("NPROC_PER_NODE=4 CUDA_VISIBLE_DEVICES=0,1,2,3 swift sft --model x --dataset d", 0),
        (
            "export NPROC_PER_NODE=4\nCUDA_VISIBLE_DEVICES=0,1,2,3 swift sft --model x --dataset d",
            0,
        ),
        ("CUDA_VISIBLE_DEVICES=0,1,2,3 swift sft --model Qwen/Qwen3-8B --dataset d", 1),
        # One GPU does not hold its weights.
        ("CUDA_VISIBLE_DEVICES=0,1,2,3 swift sft --model Qwen/Qwen3-Next-80B-A3B --dataset d", 0),
        (
            "CUDA_VISIBLE_DEVICES=0,1 swift sft --model Qwen/Qwen2.5-72B --quant_bits 4 --dataset d",
            1,
        ),
        ("CUDA_VISIBLE_DEVICES=0 swift sft --model x --dataset d", 0),
        ("CUDA_VISIBLE_DEVICES=0,1 swift infer --model x", 0),
        ("#SBATCH --gres=gpu:4\ntune run lora_finetune_single_device --config a.yaml", 1),
        (
            "#SBATCH --gres=gpu:4\n#SBATCH --ntasks=1\nsrun tune run lora_finetune_single_device --config a.yaml",
            1,
        ),
        (
            "#SBATCH --gres=gpu:4\ntune run --nproc_per_node 4 lora_finetune_distributed --config a.yaml",
            0,
        ),
        ("#SBATCH --gres=gpu:1\ntune run lora_finetune_single_device --config a.yaml", 0),
    ],
)
def test_programs_that_start_one_process(tmp_path: Path, command: str, faults: int) -> None:
    path = tmp_path / "job.sbatch"
    path.write_text(f"#!/bin/bash\n{command}\n", encoding="utf-8")
    assert len(lint([path], select=["CMD004"]).findings) == faults


@pytest.mark.parametrize(
    ("setting", "faults"),
    [
        ('os.environ["CUDA_VISIBLE_DEVICES"] = "0,1"', 1),
        ('os.environ["CUDA_VISIBLE_DEVICES"] = "0,1,2,3"', 0),
        ('if DEBUG:\n    os.environ["CUDA_VISIBLE_DEVICES"] = "0"', 0),
        ('os.environ["CUDA_VISIBLE_DEVICES"] = args.gpus', 0),
    ],
)
def test_gpus_that_a_script_leaves_itself(tmp_path: Path, setting: str, faults: int) -> None:
    (tmp_path / "train.py").write_text(f"import os\n{setting}\nimport torch\n", encoding="utf-8")
    (tmp_path / "run.sh").write_text("torchrun --nproc_per_node=4 train.py\n", encoding="utf-8")
    assert len(lint([tmp_path / "run.sh"], select=["CMD004"]).findings) == faults


WHOLE = {
    "train_batch_size": 8,
    "train_micro_batch_size_per_gpu": 2,
    "gradient_accumulation_steps": 2,
}
OPTIONS = "--per_device_train_batch_size 2 --gradient_accumulation_steps 2 --deepspeed ds.json"
IN_SCRIPT = (
    "'out', per_device_train_batch_size=2, gradient_accumulation_steps=2, deepspeed='ds.json'"
)


@pytest.mark.parametrize(
    ("command", "script", "settings", "faults"),
    [
        (f"deepspeed --num_gpus 4 train.py {OPTIONS}", TRAINER.format("'out'"), WHOLE, 1),
        (f"torchrun --nproc_per_node=4 train.py {OPTIONS}", TRAINER.format("'out'"), WHOLE, 1),
        (
            f"deepspeed --include localhost:0,1,2,3 train.py {OPTIONS}",
            TRAINER.format("'out'"),
            WHOLE,
            1,
        ),
        (
            "torchrun --nproc-per-node 4 train.py --deepspeed ds.json",
            TRAINER.format(IN_SCRIPT),
            WHOLE,
            1,
        ),
        (
            f"torchrun --nproc_per_node 4 train.py {OPTIONS}",
            TRAINER.format("'out'"),
            {"train_batch_size": 8},
            1,
        ),
        (
            "deepspeed --num_gpus 4 train.py --deepspeed_config ds.json",
            LOOP.format("args=args, model=m"),
            WHOLE,
            1,
        ),
        (f"deepspeed --num_gpus 2 train.py {OPTIONS}", TRAINER.format("'out'"), WHOLE, 0),
        (
            f"deepspeed --num_gpus 4 train.py {OPTIONS}",
            TRAINER.format("'out'"),
            {"train_batch_size": "auto"},
            0,
        ),
        (f"deepspeed train.py {OPTIONS}", TRAINER.format("'out'"), WHOLE, 0),
        (f"deepspeed --num_gpus $GPUS train.py {OPTIONS}", TRAINER.format("'out'"), WHOLE, 0),
        (
            f"torchrun --nnodes 2 --nproc_per_node 1 train.py {OPTIONS}",
            TRAINER.format("'out'"),
            WHOLE,
            0,
        ),
        (
            "deepspeed --num_gpus 4 train.py --deepspeed ds.json",
            TRAINER.format("'out'"),
            {"train_batch_size": 8},
            0,
        ),
    ],
)
def test_the_batch_of_all_processes_together(
    tmp_path: Path, command: str, script: str, settings: dict[str, object], faults: int
) -> None:
    assert count(tmp_path, command, script, ds=json.dumps(settings)) == faults


def test_the_processes_of_accelerate_make_the_whole_batch(tmp_path: Path) -> None:
    script, settings = TRAINER.format(IN_SCRIPT), json.dumps(WHOLE)
    command = "accelerate launch --config_file acc.yaml train.py"
    for processes, faults in ((2, 0), (4, 1)):
        acc = f"{OF_DEEPSPEED.format('bf16').replace('{{', '{').replace('}}', '}')}num_processes: {processes}\n"
        assert count(tmp_path, command, script, ds=settings, acc=acc) == faults


@pytest.mark.parametrize(
    ("command", "faults"),
    [
        ("accelerate launch --cpu train.py", 1),
        ("python train.py --use_cpu True --lr 1e-5", 1),
        ("nvidia-smi\npython train.py cpu.yaml", 1),
        ("python train.py --no_cuda --lr 1e-5", 1),
        ("python train.py gpu.yaml", 0),
        ("python train.py --use_cpu False", 0),
        # The second program may use the GPUs.
        ("python train.py --use_cpu True\npython evaluate.py", 0),
        ("accelerate launch --num_processes 2 train.py --cpu", 0),
    ],
)
def test_jobs_that_stay_on_the_cpu(tmp_path: Path, command: str, faults: int) -> None:
    """A job with GPUs whose programs are all told not to use them."""
    (tmp_path / "cpu.yaml").write_text("lr: 1.0e-5\nuse_cpu: true\n", encoding="utf-8")
    (tmp_path / "gpu.yaml").write_text("lr: 1.0e-5\nuse_cpu: false\n", encoding="utf-8")
    path = tmp_path / "job.sbatch"
    path.write_text(f"#!/bin/bash\n#SBATCH --gres=gpu:2\n{command}\n", encoding="utf-8")
    assert len(lint([path], select=["CMD004"]).findings) == faults


@pytest.mark.parametrize(
    ("processes", "faults"),
    [(8, 1), (16, 0)],
)
def test_launches_inside_of_a_shell_of_each_node(
    tmp_path: Path, processes: int, faults: int
) -> None:
    settings = f"distributed_type: MULTI_GPU\nnum_machines: 2\nnum_processes: {processes}\n"
    (tmp_path / "acc.yaml").write_text(settings, encoding="utf-8")
    job = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --gpus-per-node=8\n#SBATCH --ntasks-per-node=1\n"
    launch = "srun bash -c 'accelerate launch --config_file acc.yaml --machine_rank $SLURM_NODEID train.py'\n"
    (tmp_path / "job.sbatch").write_text(job + launch, encoding="utf-8")
    assert len(lint([tmp_path / "job.sbatch"], select=["CMD004"]).findings) == faults


NODES = "#!/bin/bash\n#SBATCH --nodes={}\nsrun accelerate launch --config_file acc.yaml train.py"
MACHINES = "distributed_type: MULTI_GPU\nnum_machines: {}\nnum_processes: 16\n"


@pytest.mark.parametrize(
    ("nodes", "machines", "found"), [(4, 2, 1), (2, 4, 1), (4, 4, 0), (4, 1, 0), ("$N", 2, 0)]
)
def test_machines_beside_the_nodes_of_a_job(
    tmp_path: Path, nodes: int, machines: int, found: int
) -> None:
    assert count(tmp_path, NODES.format(nodes), acc=MACHINES.format(machines)) == found


@pytest.mark.parametrize(
    "command",
    [
        "accelerate launch --config_file acc.yaml -m trl.scripts.sft --model_name_or_path {}",
        "srun bash -c 'accelerate launch --config_file acc.yaml -m trl.scripts.sft --model_name_or_path {}'",
        "srun bash -c 'accelerate launch --config_file acc.yaml train.py --model_name_or_path {}'",
    ],
)
def test_layers_of_a_module_that_is_started(tmp_path: Path, command: str) -> None:
    for model, found in (("Qwen/Qwen2.5-14B", 1), ("meta-llama/Llama-3.1-8B", 0)):
        config = FSDP.format("LlamaDecoderLayer")
        assert count(tmp_path, command.format(model), acc=config) == found


@pytest.mark.parametrize(("stage", "found"), [(3, 1), (2, 0), ("auto", 0)])
def test_two_stages_of_zero(tmp_path: Path, stage: object, found: int) -> None:
    command = "accelerate launch --config_file acc.yaml train.py"
    script = TRAINER.format("'out', deepspeed='ds.json'")
    config = f"distributed_type: DEEPSPEED\ndeepspeed_config: {{zero_stage: {stage}}}\nnum_processes: 8\n"
    assert (
        count(tmp_path, command, script, ds='{"zero_optimization": {"stage": 2}}', acc=config)
        == found
    )


@pytest.mark.parametrize(("whole", "found"), [(64, 1), (128, 0)])
def test_a_file_that_an_engine_is_given(tmp_path: Path, whole: int, found: int) -> None:
    script = "import json\nconf = json.load(open('ds.json'))\n" + LOOP.format(
        "model=m, config=conf"
    )
    numbers = {"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 4}
    settings = json.dumps({"train_batch_size": whole, **numbers})
    assert count(tmp_path, "deepspeed --num_gpus 8 train.py", script, ds=settings) == found


@pytest.mark.parametrize(
    ("options", "rank", "found"),
    [
        ("", 64, 1),
        ("--max-lora-rank 32", 64, 1),
        ("--max-lora-rank 64", 64, 0),
        ("", 16, 0),
        ("--max-lora-rank $RANK", 64, 0),
        ("--config serve.yaml", 64, 0),
    ],
)
def test_the_rank_that_a_server_takes(tmp_path: Path, options: str, rank: int, found: int) -> None:
    (tmp_path / "adapter").mkdir()
    (tmp_path / "adapter" / "adapter_config.json").write_text(f'{{"r": {rank}}}', encoding="utf-8")
    command = f"vllm serve base --enable-lora {options} --lora-modules support=./adapter\n"
    (tmp_path / "run.sh").write_text(command, encoding="utf-8")
    assert len(lint([tmp_path / "run.sh"], select=["CMD038"]).findings) == found


@pytest.mark.parametrize(
    ("kind", "processes", "options", "found"),
    [
        ("'NO'", 8, "", 1),
        ("NO", 4, "", 1),
        ("'NO'", 1, "", 0),
        ("MULTI_GPU", 8, "", 0),
        ("'NO'", 8, "--multi_gpu", 0),
        ("'NO'", 8, "--use_deepspeed", 0),
    ],
)
def test_processes_that_no_launcher_starts(
    kind: str, processes: int, options: str, found: int, tmp_path: Path
) -> None:
    settings = f"distributed_type: {kind}\nnum_machines: 1\nnum_processes: {processes}\n"
    command = f"accelerate launch --config_file acc.yaml {options} train.py"
    assert count(tmp_path, command, acc=settings) == found
