"""Weights of 16 bits that an optimizer updates in place (SRC038, SRC060)."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.lint import lint

RULES = ["float16-weights-under-adam", "bf16-weights-lose-small-updates"]
LOAD = """
import argparse
import torch
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
model = AutoModelForCausalLM.from_pretrained("m"{arguments})
"""
PLAIN = LOAD.format(arguments="")
F16 = LOAD.format(arguments=", dtype=torch.float16")
BF16 = LOAD.format(arguments=", dtype=torch.bfloat16")
ADAM = "optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6)\n"
TRAIN = (
    'Trainer(model=model, args=TrainingArguments("out"{arguments}), train_dataset=rows).train()\n'
)
MODULE = """
import lightning as L
class Tuner(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = {net}
    def training_step(self, batch, number):
        return self.net(**batch).loss
    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-6)
L.Trainer(precision="{precision}").fit(Tuner(), loader)
"""
GROUPS = """
def groups(model):
    large = [p for n, p in model.named_parameters() if p.ndim > 1]
    small = [p for n, p in model.named_parameters() if p.ndim < 2]
    return [{"params": large, "weight_decay": 0.1}, {"params": small}]
optimizer = torch.optim.AdamW(groups(model), lr=1e-6)
"""
LORA = "from peft import LoraConfig, get_peft_model\n"
OPTION = """
parser = argparse.ArgumentParser()
parser.add_argument("--rate", type=float, default=1e-6)
args = parser.parse_args()
"""
ONE_BY_ONE = "for part in model.parameters():\n    part.data = part.data.float()\n"
KEPT = """
class Loop:
    def __init__(self, settings):
        self.model = AutoModelForCausalLM.from_pretrained("m", dtype=getattr(torch, settings["dtype"]))
        self.model.to("cuda")
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=settings["rate"])
Loop({"dtype": "bfloat16", "rate": 2e-6})
"""


def found_in(text: str, folder: Path) -> list[str]:
    path = folder / "train.py"
    path.write_text(text, encoding="utf-8")
    return [f"{one.severity} {one.rule}" for one in lint([path], select=RULES).findings]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (F16 + ADAM, "error float16-weights-under-adam"),
        (PLAIN + "model.half()\n" + ADAM, "error float16-weights-under-adam"),
        (PLAIN + "model.to('cuda', torch.float16)\n" + ADAM, "error float16-weights-under-adam"),
        (F16 + "model.to('cuda')\n" + GROUPS, "error float16-weights-under-adam"),
        (
            PLAIN + MODULE.format(net="model", precision="16-true"),
            "error float16-weights-under-adam",
        ),
        (F16 + TRAIN.format(arguments=", fp16=True"), "error float16-weights-under-adam"),
        (F16 + TRAIN.format(arguments=""), "warning float16-weights-under-adam"),
        (BF16 + ADAM, "warning bf16-weights-lose-small-updates"),
        (BF16 + GROUPS, "warning bf16-weights-lose-small-updates"),
        (PLAIN + KEPT, "warning bf16-weights-lose-small-updates"),
        (
            BF16 + OPTION + ADAM.replace("1e-6", "args.rate"),
            "warning bf16-weights-lose-small-updates",
        ),
        (
            PLAIN + MODULE.format(net="model", precision="bf16-true"),
            "warning bf16-weights-lose-small-updates",
        ),
    ],
)
def test_weights_that_are_updated_in_place_are_found(
    text: str, expected: str, tmp_path: Path
) -> None:
    assert found_in(text, tmp_path) == [expected]


@pytest.mark.parametrize(
    "text",
    [
        PLAIN + ADAM,
        F16 + "model.float()\n" + ADAM,
        F16 + "model.to(torch.float32)\n" + ADAM,
        F16 + "from elsewhere import widen\nwiden(model)\n" + ADAM,
        F16 + ONE_BY_ONE + ADAM,
        F16 + LORA + "model = get_peft_model(model, LoraConfig())\n" + ADAM,
        F16 + LORA + "wrapped = get_peft_model(model, LoraConfig())\n" + ADAM,
        F16 + "master = [p.detach().clone().float() for p in model.parameters()]\n"
        "optimizer = torch.optim.AdamW(master, lr=1e-6)\n",
        F16 + ADAM.replace("lr=1e-6", "lr=1e-6, eps=1e-4"),
        F16 + TRAIN.format(arguments=", bf16=True"),
        F16 + TRAIN.format(arguments=", deepspeed='ds.json'"),
        F16
        + TRAIN.replace("train_dataset", "peft_config=adapter, train_dataset").format(arguments=""),
        LOAD.format(arguments=", dtype=torch.float16, quantization_config=four_bit")
        + TRAIN.format(arguments=""),
        BF16 + ADAM.replace("1e-6", "2e-4"),
        BF16 + ADAM.replace("torch.optim.AdamW", "optimi.AdamW"),
        LOAD.format(arguments=", dtype='auto'") + ADAM,
        PLAIN + MODULE.format(net="model", precision="bf16-mixed"),
        "wide = True\n" + F16 + "if torch.cuda.device_count() > 1:\n    model.float()\n" + ADAM,
    ],
)
def test_weights_with_float32_somewhere_are_left_alone(text: str, tmp_path: Path) -> None:
    assert found_in(text, tmp_path) == []
