"""Models that are used on the CPU, although a GPU is meant (SRC034)."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.lint import lint

LOAD = """
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, pipeline
tok = AutoTokenizer.from_pretrained("Qwen/Qwen2.5-0.5B")
"""
ASK = """
print(tok.decode(model.generate(**tok("Hi", return_tensors="pt"), max_new_tokens=40)[0]))
"""
TRAIN = """
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
for batch in torch.load("rows.pt"):
    model(**batch).loss.backward()
    optimizer.step()
"""
JOB = """#!/bin/bash
#SBATCH --gres=gpu:1
python run.py{options}
"""
SMALL = 'model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B"{arguments})\n'
LARGE = 'model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B"{arguments})\n'
PLAIN = SMALL.format(arguments="")
BF16 = SMALL.format(arguments=", dtype=torch.bfloat16")
ON_CPU = SMALL.format(arguments=', device_map="cpu"')
OPTION = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cpu")
args = parser.parse_args()
"""
HELPER = """
def place(model, device="cpu"):
    return model.to(device)
"""
KEEPER = """
class Keeper(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model
keeper = Keeper(model)
"""
TRAINER = """
from transformers import Trainer, TrainingArguments
args = TrainingArguments("out", {arguments})
Trainer(model=model, args=args, train_dataset=torch.load("rows.pt")).train()
"""
ACCELERATE = """
from accelerate import Accelerator
accelerator = Accelerator({arguments})
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
model, optimizer = accelerator.prepare(model, optimizer)
for batch in torch.load("rows.pt"):
    accelerator.backward(model(**batch).loss)
    optimizer.step()
"""
PIPE = 'pipe = pipeline("text-generation", model="merged", device={device})\npipe(["Hi"])\n'
HIDDEN = 'import os\nos.environ["CUDA_VISIBLE_DEVICES"] = "-1"\n'


def is_found(text: str, folder: Path, job: str | None = None) -> bool:
    path = folder / "run.py"
    path.write_text(LOAD + text, encoding="utf-8")
    if job is not None:
        (folder / "run.sbatch").write_text(JOB.format(options=job), encoding="utf-8")
    return any(
        one.severity == "warning" for one in lint([path], select=["model-left-on-the-cpu"]).findings
    )


@pytest.mark.parametrize(
    "text",
    [
        BF16 + ASK,
        PLAIN + "model.half()\n" + ASK,
        BF16 + HELPER + "model = place(model)\nassert torch.cuda.is_available()\n" + ASK,
        PLAIN + "model.cuda()\nmodel = model.cpu()\n" + ASK,
        SMALL.format(arguments=', device_map="auto"') + 'model.to("cpu")\n' + TRAIN,
        LARGE.format(arguments="") + 'model.to("cpu")\n' + TRAIN,
        PLAIN + "torch.cuda.set_device(0)\n" + TRAIN,
        LARGE.format(arguments="") + TRAINER.format(arguments="use_cpu=True"),
        LARGE.format(arguments="") + TRAINER.format(arguments="no_cuda=True, fp16=True"),
        LARGE.format(arguments="") + ACCELERATE.format(arguments="cpu=True"),
        HIDDEN + LARGE.format(arguments="") + TRAINER.format(arguments="bf16=True"),
    ],
)
def test_models_that_stay_on_the_cpu_are_found(text: str, tmp_path: Path) -> None:
    assert is_found(text, tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        PLAIN + ASK,
        ON_CPU + ASK,
        BF16 + "model.to('cuda')\n" + ASK,
        BF16 + "if torch.cuda.is_available():\n    model.cuda()\n" + ASK,
        BF16 + "from elsewhere import put\nput(model)\n" + ASK,
        BF16 + KEEPER + "keeper.cuda()\n" + ASK,
        BF16 + "for part in model.parameters():\n    part.data = part.data.to('cuda')\n" + ASK,
        BF16 + HELPER + "model = place(model, 'cuda:1')\n" + ASK,
        BF16 + HELPER + "model = place(model, torch.device(f'cuda:{int(input())}'))\n" + ASK,
        BF16 + "model.save_pretrained('out')\n",
        "device = 'cpu'\n" + BF16 + ASK,
        "torch.set_default_device('cuda')\n" + BF16 + ASK,
        "with torch.device('cuda'):\n    " + BF16 + ASK,
        SMALL.format(arguments=", **settings") + ASK,
        BF16 + TRAINER.format(arguments="bf16=True") + ASK,
        LARGE.format(arguments="") + TRAINER.format(arguments="use_cpu=True, max_steps=2"),
        PLAIN + TRAINER.format(arguments="use_cpu=True"),
        LARGE.format(arguments="")
        + TRAINER.format(arguments="use_cpu=not torch.cuda.is_available()"),
        LARGE.format(arguments="") + ACCELERATE.format(arguments=""),
        PIPE.format(device="-1"),
        PLAIN + "model.cuda()\n" + TRAIN + "model.to('cpu')\nmodel.save_pretrained('out')\n",
    ],
)
def test_models_that_are_moved_or_meant_for_the_cpu_are_left_alone(
    text: str, tmp_path: Path
) -> None:
    assert not is_found(text, tmp_path)


@pytest.mark.parametrize(
    ("text", "options", "found"),
    [
        (PLAIN + ASK, "", True),
        (ON_CPU + ASK, "", True),
        (PIPE.format(device="'cpu'"), "", True),
        (PIPE.format(device="0"), "", False),
        (OPTION + PIPE.format(device="args.device"), " --model merged", True),
        (OPTION + PIPE.format(device="args.device"), " --device cuda", False),
        (OPTION + BF16 + "model.to(args.device)\n" + ASK, "", True),
        (OPTION + BF16 + "model.to(args.device)\n" + ASK, " --device=cuda:0", False),
        (PLAIN + TRAINER.format(arguments="use_cpu=True"), "", True),
        (PLAIN + TRAINER.format(arguments="bf16=True"), "", False),
        (PLAIN + "model.cuda()\n" + ASK, "", False),
    ],
)
def test_a_job_with_a_gpu_means_it(text: str, options: str, found: bool, tmp_path: Path) -> None:
    assert is_found(text, tmp_path, options) == found


def test_without_a_job_the_default_of_an_option_says_nothing(tmp_path: Path) -> None:
    assert not is_found(OPTION + PIPE.format(device="args.device"), tmp_path)
