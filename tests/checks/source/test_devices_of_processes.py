"""GPUs and parts that processes share, or are never given: scripts that do, and scripts that are near that."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.lint import lint

LATE = "import os\nimport torch\n{}\nos.environ['CUDA_VISIBLE_DEVICES'] = '1'\n"
ACCELERATED = """
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM

acc = Accelerator()
model = AutoModelForCausalLM.from_pretrained("base")
loader = DataLoader(rows, batch_size=4, shuffle=True)
opt = torch.optim.AdamW(model.parameters(), lr=1e-5)
{}
for batch in loader:
    acc.backward(model(**batch).loss)
    opt.step()
    opt.zero_grad()
"""
WRAPPED = """
import torch
from torch.nn.parallel import DistributedDataParallel as DDP
from transformers import AutoModelForCausalLM

torch.distributed.init_process_group("nccl")
{}
model = DDP(AutoModelForCausalLM.from_pretrained("base").to(device))
model(**batch).loss.backward()
"""
KEPT = """
from transformers import AutoModelForSequenceClassification, Trainer, TrainingArguments

model = AutoModelForSequenceClassification.from_pretrained("base", num_labels=3{})
trainer = Trainer(model=model, args=TrainingArguments("out"{}), eval_dataset=rows, compute_metrics=metrics{})
trainer.evaluate()
"""


def count(folder: Path, code: str, text: str) -> int:
    """How often a rule names a fault in a script."""
    (folder / "train.py").write_text(text, encoding="utf-8")
    return len(lint([folder / "train.py"], select=[code]).findings)


@pytest.mark.parametrize(
    ("before", "faults"),
    [
        ("print(torch.cuda.is_available())", 1),
        ("device = 'cuda' if torch.cuda.is_available() else 'cpu'", 1),
        ("x = torch.zeros(1).to('cuda')", 1),
        ("from unsloth import FastLanguageModel", 1),
        ("print(torch.__version__)", 0),  # an import alone asks for no GPU
        ("print(torch.cuda.device_count())", 0),  # asks NVML, which starts nothing
        ("def pick():\n    return torch.cuda.is_available()", 0),  # not run yet
    ],
)
def test_visible_devices_that_come_too_late(tmp_path: Path, before: str, faults: int) -> None:
    assert count(tmp_path, "SRC111", LATE.format(before)) == faults


@pytest.mark.parametrize(
    ("prepare", "loaders", "models"),
    [
        ("model, opt = acc.prepare(model, opt)", 1, 0),
        ("model, opt, loader = acc.prepare(model, opt, loader)", 0, 0),
        ("opt, loader = acc.prepare(opt, loader)", 0, 1),
        ("model = acc.prepare(model)\nopt, loader = acc.prepare(opt, loader)", 0, 0),
        ("parts = acc.prepare(*parts)", 0, 0),
        ("", 0, 0),
    ],
)
def test_what_accelerate_is_given(tmp_path: Path, prepare: str, loaders: int, models: int) -> None:
    text = ACCELERATED.format(prepare)
    assert count(tmp_path, "SRC084", text) == loaders
    assert count(tmp_path, "SRC022", text) == models


@pytest.mark.parametrize(
    ("device", "faults"),
    [
        ("device = torch.device('cuda:0')", 1),
        ("device = 'cuda'", 1),
        ("device = torch.device('cuda', rank)", 0),
        ("device = torch.device(f'cuda:{rank}')", 0),
        ("torch.cuda.set_device(rank)\ndevice = torch.device('cuda')", 0),
        ("torch.cuda.set_device(0)\ndevice = 'cuda'", 1),
        ("device = torch.device('cuda:0')\ntorch.cuda.set_device(device)", 1),
        ("def start():\n    torch.cuda.set_device('cuda:0')\nstart()\ndevice = 'cuda'", 1),
        (
            "import os\nn = int(os.environ.get('LOCAL_RANK', 0))\ntorch.cuda.set_device(n)\ndevice = n",
            0,
        ),
        ("if rank == 0:\n    torch.cuda.set_device(0)\ndevice = 'cuda'", 0),
        ("device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')", 1),
        ("class Trainer:\n    pass\nt = Trainer()\ndevice = torch.device(type='cuda')", 1),
        ("from transformers import Trainer\nt = Trainer()\ndevice = torch.device('cuda')", 0),
        ("device = torch.device('cpu')", 0),
        ("device = 'cuda:' + str(rank)", 0),
        ("device = f'cuda:{rank}' if torch.cuda.is_available() else 'cuda'", 0),
    ],
)
def test_the_gpu_of_each_process(tmp_path: Path, device: str, faults: int) -> None:
    assert count(tmp_path, "SRC093", WRAPPED.format(device)) == faults


@pytest.mark.parametrize(
    ("build", "faults"),
    [
        ("model = DDP(Net().to('cuda'))", 1),
        ("net = Net()\nnet.cuda()\nmodel = DDP(net)", 1),
        ("other = Net().to('cuda')\nmodel = DDP(Net())", 0),
        ("model = DDP(AutoModelForCausalLM.from_pretrained('base', device_map='cuda'))", 1),
        ("model = DDP(AutoModelForCausalLM.from_pretrained('base', device_map={'': rank}))", 0),
    ],
)
def test_models_of_ones_own_and_those_loaded_onto_a_gpu(
    tmp_path: Path, build: str, faults: int
) -> None:
    text = WRAPPED.format("class Net(torch.nn.Module):\n    pass")
    wrapped = 'model = DDP(AutoModelForCausalLM.from_pretrained("base").to(device))'
    assert count(tmp_path, "SRC093", text.replace(wrapped, build)) == faults


@pytest.mark.parametrize(
    ("of_model", "of_arguments", "of_trainer", "faults"),
    [
        (", output_hidden_states=True", "", "", 1),
        (", output_hidden_states=False", "", "", 0),
        ("", "", "", 0),
        (", output_attentions=True", ", eval_accumulation_steps=1", "", 0),
        (", output_attentions=True", "", ", preprocess_logits_for_metrics=first", 0),
    ],
)
def test_outputs_kept_in_an_evaluation(
    tmp_path: Path, of_model: str, of_arguments: str, of_trainer: str, faults: int
) -> None:
    assert count(tmp_path, "SRC061", KEPT.format(of_model, of_arguments, of_trainer)) == faults
