"""Out-of-memory errors beside the script, commands and folders that say what the weights and the steps held."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.checks.test_files_beside_logs import SITE, found, words

MESSAGE = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {}. GPU {} has a total capacity of 39.38 GiB of"
    " which 143.00 MiB is free. Including non-PyTorch memory, this process has 39.23 GiB memory in use. Of the"
    " allocated memory 38.41 GiB is allocated by PyTorch, and 311.52 MiB is reserved by PyTorch but unallocated."
)
BACKWARD = ("transformers/trainer.py", "training_step", "self.accelerator.backward(loss)")
HEAD = (
    "transformers/models/qwen2/modeling_qwen2.py",
    "forward",
    "logits = self.lm_head(hidden_states)",
)
LOADING = ("transformers/modeling_utils.py", "from_pretrained", "model = cls(config)")
PAIRS = (
    "trl/trainer/dpo_trainer.py",
    "concatenated_forward",
    "logps = selective_log_softmax(logits, labels)",
)
ENGINE = (
    "deepspeed/runtime/engine.py",
    "_configure_distributed_model",
    "self.module.to(self.device)",
)
CAPTURE = ("vllm/v1/worker/gpu_model_runner.py", "capture_model", "self._dummy_run(n)")
HARNESS = (
    "lm_eval/models/huggingface.py",
    "_loglikelihood_tokens",
    "F.log_softmax(self._model_call(x), dim=-1)",
)
STEP = ("transformers/trainer.py", "training_step", "loss = self.compute_loss(model, inputs)")

TRAINER = """
import torch
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

model = AutoModelForCausalLM.from_pretrained("{model}"{load})
args = TrainingArguments(output_dir="out", {settings})
Trainer(model=model, args=args, train_dataset=rows).train()
"""
OLD, NEW = "transformers==4.51.3\n", "transformers==5.1.0\n"
MERGE = """
from peft import PeftModel
from transformers import AutoModelForCausalLM

base = AutoModelForCausalLM.from_pretrained(name, device_map="auto", torch_dtype=torch.float32)
PeftModel.from_pretrained(base, "adapter").merge_and_unload().save_pretrained("merged")
"""
LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 32000,
    "hidden_size": 5120,
    "intermediate_size": 13824,
    "num_hidden_layers": 40,
    "num_attention_heads": 40,
    "num_key_value_heads": 40,
    "tie_word_embeddings": False,
}
DPO = """
from trl import DPOConfig, DPOTrainer

args = DPOConfig(output_dir="out", per_device_train_batch_size=4, max_length=4096)
DPOTrainer(model=model, args=args, train_dataset=rows).train()
"""
SPREAD = TRAINER.format(
    model="Qwen/Qwen2.5-14B",
    load=', dtype=torch.bfloat16, device_map="auto"',
    settings="per_device_train_batch_size=1",
)


def failed(
    *frames: tuple[str, str, str], asked: str = "1.96 GiB", gpu: int = 0, user: str = ""
) -> str:
    """A traceback that ends in an out-of-memory message; `user` is the line of the script that it begins at."""
    lines = "".join(
        f'  File "{SITE}/{file}", line 17, in {name}\n    {code}\n' for file, name, code in frames
    )
    return (
        'Traceback (most recent call last):\n  File "/home/user/train.py", line 40, in <module>\n'
        f"    {user or 'trainer.train()'}\n"
        f"{lines}{MESSAGE.format(asked, gpu)}\n"
    )


def sft(
    load: str,
    settings: str = "per_device_train_batch_size=1",
    model: str = "meta-llama/Llama-3.1-8B",
) -> str:
    """A script that trains by the Trainer."""
    return TRAINER.format(model=model, load=load, settings=settings)


def notebook(first: int, second: int) -> str:
    """A cell that loads a model and fails, and one that trains, as they were run."""
    error = MESSAGE.format("260.00 MiB", 0)
    load = (
        "from transformers import AutoModelForCausalLM\n"
        'model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B")\n'
    )
    cells = [
        (
            first,
            load,
            [
                {
                    "output_type": "error",
                    "ename": "OutOfMemoryError",
                    "evalue": error,
                    "traceback": [error],
                }
            ],
        ),
        (second, "trainer.train()\n", []),
    ]
    return json.dumps(
        {
            "cells": [
                {
                    "cell_type": "code",
                    "execution_count": count,
                    "metadata": {},
                    "outputs": outputs,
                    "source": source,
                }
                for count, source, outputs in cells
            ],
            "metadata": {},
            "nbformat": 4,
            "nbformat_minor": 5,
        }
    )


@pytest.mark.parametrize(
    ("log", "files", "said", "unsaid"),
    [
        pytest.param(
            failed(BACKWARD),
            {"train.py": sft(""), "requirements.txt": OLD},
            "train.py:5 loads meta-llama/Llama-3.1-8B",
            "",
            id="float32 by default",
        ),
        pytest.param(
            failed(BACKWARD),
            {"train.py": sft(""), "requirements.txt": NEW},
            "",
            "float32",
            id="a transformers that takes the checkpoint's type",
        ),
        pytest.param(
            failed(BACKWARD),
            {"train.py": sft("", model="Qwen/Qwen2.5-0.5B"), "requirements.txt": OLD},
            "",
            "then loads float32",
            id="a model that is small beside the GPU",
        ),
        pytest.param(
            failed(STEP, HEAD),
            {"train.py": sft(", dtype=torch.bfloat16", "group_by_length=True")},
            "group_by_length=True (train.py:6) puts the longest rows into one batch",
            "",
            id="rows by length",
        ),
        pytest.param(
            failed(STEP, HEAD),
            {"train.py": sft(", dtype=torch.bfloat16", "group_by_length=False")},
            "",
            "longest rows into one batch",
            id="rows in any order",
        ),
        pytest.param(
            failed(STEP, HEAD, gpu=1),
            {"train.py": SPREAD},
            "GPU 1 holds later layers",
            "",
            id="layers on two GPUs",
        ),
        pytest.param(
            failed(STEP, HEAD), {"train.py": SPREAD}, "", "later layers", id="the first GPU"
        ),
        pytest.param(
            failed(STEP, PAIRS, asked="15.66 GiB"),
            {"train.py": DPO},
            "8 x 4,096 x 128,256 at 4 bytes",
            "",
            id="pairs are two rows each",
        ),
        pytest.param(
            failed(ENGINE),
            {
                "train.py": sft(", dtype=torch.bfloat16", model="01-ai/Yi-1.5-34B"),
                "ds.json": '{\n "zero_optimization": {\n  "stage": 2\n }\n}\n',
            },
            "set stage to 3 instead of 2 (ds.json:3)",
            "halve",
            id="stage 2",
        ),
        pytest.param(
            failed(ENGINE),
            {"ds.json": '{"zero_optimization": {"stage": 3}}\n'},
            "zero.Init",
            "instead of",
            id="stage 3",
        ),
        pytest.param(
            failed(
                user="base = AutoModelForCausalLM.from_pretrained(name, torch_dtype=torch.float32)"
            ),
            {"train.py": MERGE},
            "merge on the CPU",
            "per_device_train",
            id="a merge",
        ),
        pytest.param(
            failed(LOADING),
            {"merge.py": MERGE, "loop.py": SPREAD},
            "",
            "merge on the CPU",
            id="the merge of another script",
        ),
        pytest.param(
            failed(STEP, HEAD, gpu=1),
            {"other.py": SPREAD},
            "",
            "later layers",
            id="the load of another script",
        ),
        pytest.param(
            failed(LOADING),
            {"train.py": sft(", dtype=torch.bfloat16", model="Qwen/Qwen3-30B-A3B")},
            "all experts are held",
            "merge on the CPU",
            id="a mixture of experts",
        ),
        pytest.param(
            failed(LOADING),
            {
                "merged/config.json": json.dumps({**LLAMA, "torch_dtype": "float32"}),
                "note.py": "x = 1\n",
            },
            "the model of merged/ (config.json): its weights were saved in float32, 48.5 GiB",
            "",
            id="saved in float32",
        ),
        pytest.param(
            failed(LOADING),
            {
                "merged/config.json": json.dumps({**LLAMA, "torch_dtype": "bfloat16"}),
                "note.py": "x = 1\n",
            },
            "",
            "saved in float32",
            id="saved in 16 bits",
        ),
        pytest.param(
            failed(CAPTURE),
            {"serve.sh": "vllm serve ./m --gpu-memory-utilization 0.98\n"},
            "0.98 (serve.sh:1) leaves 0.8 of 39.4 GiB",
            "training's memory",
            id="graphs of a server",
        ),
        pytest.param(
            failed(HARNESS),
            {"eval.sh": "lm_eval --model hf --tasks mmlu --batch_size 64\n"},
            "lower --batch_size from 64 to 4 (eval.sh:1)",
            "per_device_train",
            id="a harness",
        ),
        pytest.param(
            failed(user="sd = {k: v.clone().float() for k, v in model.state_dict().items()}"),
            {"note.py": "x = 1\n"},
            "a copy of all weights is made on the GPU",
            "shorter rows (",
            id="a copy of the weights",
        ),
        pytest.param(
            failed(user="sd = {k: v.detach().cpu() for k, v in model.state_dict().items()}"),
            {"note.py": "x = 1\n"},
            "",
            "a copy of all weights",
            id="weights that go to the CPU",
        ),
    ],
)
def test_the_files_beside_a_log_say_what_the_weights_take(
    tmp_path: Path, log: str, files: dict[str, str], said: str, unsaid: str
) -> None:
    text = words(found(tmp_path, {"run.log": log, **files}), "LOG030")
    assert said in text
    assert not unsaid or unsaid not in text


@pytest.mark.parametrize(("first", "said"), [(12, True), (7, False)])
def test_a_cell_that_was_run_again_finds_the_first_model_there(
    tmp_path: Path, first: int, said: bool
) -> None:
    text = words(found(tmp_path, {"train.ipynb": notebook(first, 8)}), "LOG030")
    assert ("restart the kernel and run each cell once" in text) is said


LOOP = """
import torch
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("model").cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
total = 0.0
for step, batch in enumerate(loader):
    loss = model(**batch).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    total += loss{end}
"""
RECORDS = "".join(f"step {n} loss {2.3 - n * 0.001:.3f}\n" for n in range(10, 201, 10))


@pytest.mark.parametrize(("end", "kept"), [("", True), (".item()", False)])
def test_what_the_loop_keeps_is_no_longer_row(tmp_path: Path, end: str, kept: bool) -> None:
    log = RECORDS + failed(user="loss.backward()")
    text = words(
        found(tmp_path, {"run.log": log, "train.py": LOOP.replace("{end}", end)}), "LOG030"
    )
    assert ("(see losses-kept-with-graph)" in text) is kept
    assert ("longer rows" in text) is not kept


SLOTS = (
    "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing"
    " the engine.\n"
)
LORA = json.dumps({"peft_type": "LORA", "r": 16, "lora_alpha": 32, "base_model_name_or_path": "m"})


@pytest.mark.parametrize(
    ("options", "said"),
    [("--max-loras 32 --max-lora-rank 256", True), ("--max-model-len 8192", False)],
)
def test_places_for_adapters_are_counted(tmp_path: Path, options: str, said: bool) -> None:
    files = {
        "vllm.log": (
            f'Traceback (most recent call last):\n  File "{SITE}/vllm/v1/core/kv_cache_utils.py", line 9, in check\n'
            f"    raise ValueError(\n{SLOTS}"
        ),
        "serve.sh": f"vllm serve m --enable-lora --lora-modules a=out {options}\n",
        "out/adapter_config.json": LORA,
    }
    text = words(found(tmp_path, files), "LOG030")
    assert ("32 x 256 = 8,192 ranks; the adapter here has r 16" in text) is said
    assert "another process" not in text


OOM_KILL = (
    "slurmstepd: error: Detected 1 oom_kill event in StepId=88123.0. Some of the step tasks have"
    " been OOM Killed.\n"
)
JOB = "#!/bin/bash\n#SBATCH --gres=gpu:1\n{asked}srun python train.py\n"
IN_A_LIST = (
    'import json\nfrom datasets import Dataset\nrows = [json.loads(line) for line in open("all.jsonl")]\n'
    "ds = Dataset.from_list(rows)\n"
)
OWN_DATASET = """
import json
from torch.utils.data import Dataset

class Rows(Dataset):
    def __init__(self, path):
        self.samples = []
        with open(path) as lines:
            for line in lines:
                self.samples.append(json.loads(line))
"""
METRICS = """
from datasets import load_dataset
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

model = AutoModelForCausalLM.from_pretrained("m")
args = TrainingArguments(output_dir="o", eval_accumulation_steps=1)
trainer = Trainer(model=model, args=args, eval_dataset=rows, compute_metrics=lambda p: {"n": len(p.predictions)}END)
trainer.evaluate()
"""


@pytest.mark.parametrize(
    ("log", "files", "said", "unsaid"),
    [
        pytest.param(
            OOM_KILL,
            {"job.sbatch": JOB.format(asked="")},
            "job.sbatch requests no memory (--mem)",
            "",
            id="no memory asked",
        ),
        pytest.param(
            OOM_KILL,
            {"job.sbatch": JOB.format(asked="#SBATCH --cpus-per-task=2\n")},
            "here for 2 (--cpus-per-task=2)",
            "",
            id="two processors",
        ),
        pytest.param(
            OOM_KILL,
            {"job.sbatch": JOB.format(asked="#SBATCH --mem=64G\n")},
            "",
            "requests no memory",
            id="memory asked",
        ),
        pytest.param(
            OOM_KILL,
            {"job.sbatch": JOB.format(asked="#SBATCH --mem-per-cpu=8G\n")},
            "",
            "requests no memory",
            id="memory by processor",
        ),
        pytest.param(
            "Killed\n",
            {"job.sbatch": JOB.format(asked="")},
            "",
            "requests no memory",
            id="not ended by Slurm",
        ),
        pytest.param(
            "10 rows\nKilled\n",
            {"prep.py": IN_A_LIST},
            "prep.py:3 keeps all rows, then a dataset of them",
            "",
            id="rows in a list",
        ),
        pytest.param(
            "10 rows\nKilled\n",
            {"prep.py": IN_A_LIST, "all.jsonl": '{"text": "a"}\n' * 9},
            "",
            "keeps all rows",
            id="a small file",
        ),
        pytest.param(
            "10 rows\nKilled\n",
            {
                "prep.py": 'from datasets import load_dataset\nds = load_dataset("json", data_files="all.jsonl")\n'
            },
            "",
            "keeps all rows",
            id="mapped from the disk",
        ),
        pytest.param(
            RECORDS + "Killed\n",
            {"train.py": METRICS.replace("END", "")},
            "moves the evaluation's logits to main memory",
            "",
            id="logits on the host",
        ),
        pytest.param(
            RECORDS + "Killed\n",
            {"train.py": METRICS.replace("END", ", preprocess_logits_for_metrics=f")},
            "",
            "moves the evaluation's logits",
            id="ids alone",
        ),
    ],
)
def test_what_filled_the_machine_s_memory(
    tmp_path: Path, log: str, files: dict[str, str], said: str, unsaid: str
) -> None:
    text = words(found(tmp_path, {"run.log": log, **files}), "LOG031")
    assert said in text
    assert not unsaid or unsaid not in text


@pytest.mark.parametrize(("signal", "said"), [("Killed", True), ("Segmentation fault", False)])
def test_workers_that_copy_a_list(tmp_path: Path, signal: str, said: bool) -> None:
    log = (
        "Traceback (most recent call last):\n"
        f'  File "{SITE}/torch/utils/data/dataloader.py", line 9, in _try_get_data\n'
        f"    data = x\nRuntimeError: DataLoader worker (pid 88121) is killed by signal: {signal}. \n"
    )
    text = words(found(tmp_path, {"run.log": log, "rows.py": OWN_DATASET}), "LOG030")
    assert ("each worker of the DataLoader copies" in text) is said
