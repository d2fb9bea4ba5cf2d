"""Loops and modules whose steps run, log a loss and learn nothing, or one batch alone; and those that are sound."""

from __future__ import annotations

import pytest

from truetune.checks.findings import Finding
from truetune.checks.rule_catalogue import find_rule
from truetune.checks.rule_runner import run_rule
from truetune.source.parsed_source_file import parse_module


def found(rule: str, text: str) -> tuple[Finding, ...]:
    return tuple(run_rule(parse_module(text, "train.py"), find_rule(rule)).findings)


LIT = """
import lightning as L
from lightning.pytorch import LightningModule
import pytorch_lightning as pl
class Tuned({base}):
    def training_step(self, batch, batch_idx):
{body}
"""
SKIPPED = {
    "logged": "        loss = self.model(**batch).loss\n        self.log('a', loss)",
    "none": "        loss = self.model(**batch).loss\n        self.log('a', loss)\n        return None",
    "bare": "        out = self(batch)\n        self.log('a', out.loss)\n        return",
    "branch": "        loss = self(batch)\n        if batch_idx % 9 == 0:\n            print(loss)",
    "inner": "        loss = self(batch)\n"
    "        def half(x):\n            return x / 2\n        self.log('a', half(loss))",
}
GIVEN = {
    "returned": "        loss = self(batch)\n        return loss",
    "dictionary": "        loss = self(batch)\n        return {'loss': loss}",
    "one way": "        loss = self(batch)\n        if loss.isnan():\n            return None\n        return loss",
    "by hand": "        loss = self(batch)\n        self.manual_backward(loss)\n        self.optimizers().step()",
    "abstract": "        ...",
    "not written": "        raise NotImplementedError",
}


@pytest.mark.parametrize("base", ["L.LightningModule", "LightningModule", "pl.LightningModule"])
@pytest.mark.parametrize("body", SKIPPED)
def test_a_step_without_a_loss_is_told(base: str, body: str) -> None:
    (one,) = found("training-step-returns-nothing", LIT.format(base=base, body=SKIPPED[body]))
    assert "return" in one.remedy


@pytest.mark.parametrize("body", GIVEN)
def test_a_step_that_gives_a_loss_is_fine(body: str) -> None:
    text = LIT.format(base="L.LightningModule", body=GIVEN[body])
    assert not found("training-step-returns-nothing", text)


def test_other_classes_may_return_nothing() -> None:
    text = LIT.format(base="Recipe", body=SKIPPED["logged"])
    assert not found("training-step-returns-nothing", text)


HEAD = """
import torch
from peft import LoraConfig, get_peft_model
from torch.nn.parallel import DistributedDataParallel as DDP
from transformers import AutoModel, AutoModelForCausalLM, LlamaForCausalLM
model = AutoModelForCausalLM.from_pretrained("a/b")
"""
CHOOSES_NONE = {
    "whole name in parts": "PARTS = ['bias', 'norm.weight']\nfor n, p in model.named_parameters():\n"
    "    p.requires_grad = n in PARTS",
    "assigned": "for n, p in model.named_parameters():\n    p.requires_grad = n.startswith('layers.31')",
    "branch": "for n, p in model.named_parameters():\n    if n.startswith('h.11.'):\n        p.requires_grad = True",
    "several": "KEEP = ('layers.30.', 'layers.31.')\nfor n, p in model.named_parameters():\n"
    "    p.requires_grad_(n.startswith(KEEP))",
    "f-string": "for i in (30, 31):\n    for n, p in model.named_parameters():\n"
    "        if n.startswith(f'layers.{i}.'):\n            p.requires_grad_(True)",
    "list": "chosen = [p for n, p in model.named_parameters() if n.startswith('layers.31')]",
    "moved": "model = LlamaForCausalLM.from_pretrained('a/b').to('cuda')\n"
    "for n, p in list(model.named_parameters()):\n    p.requires_grad = n.startswith('embed_tokens')",
    "adapter": "model = get_peft_model(model, LoraConfig())\n"
    "for n, p in model.named_parameters():\n    p.requires_grad = n.startswith('model.layers.31')",
    "or a norm": "for n, p in model.named_parameters():\n"
    "    p.requires_grad = n.startswith('layers.31') or n.endswith('norm.weight')",
    "ddp": "model = DDP(model)\nfor n, p in model.named_parameters():\n    p.requires_grad = n.startswith('model.')",
}
CHOOSES_SOME = {
    "part in name": "PARTS = ['bias', 'norm.weight']\nfor n, p in model.named_parameters():\n"
    "    p.requires_grad = any(part in n for part in PARTS)",
    "whole names": "NAMES = ['model.norm.weight', 'lm_head.weight']\nfor n, p in model.named_parameters():\n"
    "    p.requires_grad = n in NAMES",
    "prefix": "for n, p in model.named_parameters():\n    p.requires_grad = n.startswith('model.layers.31')",
    "other family": "for n, p in model.named_parameters():\n    p.requires_grad = n.startswith('transformer.h.11')",
    "head": "for n, p in model.named_parameters():\n    p.requires_grad = n.startswith('lm_head')",
    "body": "for n, p in model.model.named_parameters():\n    p.requires_grad = n.startswith('layers.31')",
    "bare model": "model = AutoModel.from_pretrained('a/b')\n"
    "for n, p in model.named_parameters():\n    p.requires_grad = n.startswith('layers.31')",
    "in": "for n, p in model.named_parameters():\n    p.requires_grad = 'layers.31' in n",
    "either": "for n, p in model.named_parameters():\n"
    "    p.requires_grad = n.startswith('layers.31') or n.startswith('model.layers.31')",
    "one of two": "for n, p in model.named_parameters():\n"
    "    p.requires_grad = n.startswith(('layers.31', 'model.layers.31'))",
    "adapter": "model = get_peft_model(model, LoraConfig())\n"
    "for n, p in model.named_parameters():\n    p.requires_grad = n.startswith('base_model.model.model.layers')",
    "a file": "for n in open('layers.txt'):\n    print(n.startswith('layers.31'))",
    "of my own": "class Net(torch.nn.Module):\n    pass\nnet = Net()\n"
    "for n, p in net.named_parameters():\n    p.requires_grad = n.startswith('layers.1')",
}


@pytest.mark.parametrize("way", CHOOSES_NONE)
def test_a_filter_that_matches_nothing_is_told(way: str) -> None:
    assert len(found("name-filter-matches-no-weight", HEAD + CHOOSES_NONE[way])) == 1


@pytest.mark.parametrize("way", CHOOSES_SOME)
def test_a_filter_that_may_match_is_fine(way: str) -> None:
    assert not found("name-filter-matches-no-weight", HEAD + CHOOSES_SOME[way])


LOADER = """
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, RandomSampler
accelerator = Accelerator()
"""
STEP = "    model(**batch).loss.backward()\n    optimizer.step()\n    optimizer.zero_grad()\n"
AGAIN = {
    "for": "loader = DataLoader(rows, batch_size=8)\nfor step in range(100):\n    batch = next(iter(loader))\n"
    + STEP,
    "while": "loader = DataLoader(rows, batch_size=8, shuffle=False)\nwhile step < 9:\n    batch = next(iter(loader))\n"
    + STEP,
    "collated": "loader = DataLoader(rows, 8, False, collate_fn=f)\nfor step in range(100):\n"
    "    batch = {k: v.cuda() for k, v in next(iter(loader)).items()}\n" + STEP,
    "function": "def train(loader):\n    for step in range(100):\n        batch = next(iter(loader))\n"
    "        accelerator.backward(model(**batch).loss)\ntrain(DataLoader(rows, batch_size=8))\n",
    "prepared": "loader = DataLoader(rows, batch_size=8)\nmodel, loader = accelerator.prepare(model, loader)\n"
    "for step in range(100):\n    batch = next(iter(loader))\n" + STEP,
}
ONWARD = {
    "before": "loader = DataLoader(rows, batch_size=8)\nit = iter(loader)\nfor step in range(9):\n"
    "    batch = next(it)\n" + STEP,
    "one batch": "loader = DataLoader(rows, batch_size=8)\nbatch = next(iter(loader))\nfor step in range(9):\n"
    + STEP,
    "loop": "loader = DataLoader(rows, batch_size=8)\nfor batch in loader:\n" + STEP,
    "sample": "loader = DataLoader(rows, batch_size=8)\nfor epoch in range(3):\n    shown = next(iter(val))\n"
    "    for batch in loader:\n        model(**batch).loss.backward()\n",
    "sampler": "loader = DataLoader(rows, batch_size=8, sampler=RandomSampler(rows))\nfor step in range(9):\n"
    "    batch = next(iter(loader))\n" + STEP,
    "no loader": "for step in range(9):\n    batch = next(iter(stream))\n" + STEP,
}


@pytest.mark.parametrize("way", AGAIN)
def test_an_iterator_that_begins_again_is_told(way: str) -> None:
    (one,) = found("first-batch-at-every-step", LOADER + AGAIN[way])
    assert one.severity == "error"


@pytest.mark.parametrize("way", ONWARD)
def test_an_iterator_that_moves_on_is_fine(way: str) -> None:
    assert not found("first-batch-at-every-step", LOADER + ONWARD[way])


def test_a_loader_that_shuffles_is_a_note() -> None:
    text = AGAIN["while"].replace("shuffle=False", "shuffle=True")
    (one,) = found("first-batch-at-every-step", LOADER + text)
    assert one.severity == "info"


STEP = """
import torch
from transformers import Trainer
from trl import SFTTrainer
class Mine({base}):
    def training_step(self, model, inputs, num_items_in_batch=None):
        model.train()
        inputs = self._prepare_inputs(inputs)
        with self.compute_loss_context_manager():
            loss = self.compute_loss(model, inputs)
        {line}
        return {value}
"""


@pytest.mark.parametrize("base", ["Trainer", "SFTTrainer"])
@pytest.mark.parametrize(
    "line",
    [
        "pass",
        "self.log({'raw': loss.item()})",
        "del inputs; torch.cuda.empty_cache()",
        "print(float(loss))",
    ],
)
def test_a_step_of_a_trainer_without_backward_is_told(base: str, line: str) -> None:
    text = STEP.format(
        base=base, line=line, value="loss.detach() / self.args.gradient_accumulation_steps"
    )
    (one,) = found("gradients-never-used", text)
    assert "backward" in one.message


@pytest.mark.parametrize(
    ("base", "line", "value"),
    [
        ("Trainer", "self.accelerator.backward(loss)", "loss.detach()"),
        ("Trainer", "kwargs = {}; self.accelerator.backward(loss, **kwargs)", "loss.detach()"),
        ("Trainer", "pass", "super().training_step(model, inputs, num_items_in_batch)"),
        ("Trainer", "self.differentiate(loss)", "loss.detach()"),
        ("Trainer", "scale_and_step(self.accelerator, loss)", "loss.detach()"),
        ("Plain", "pass", "loss"),
    ],
)
def test_a_step_of_a_trainer_that_computes_gradients_is_fine(
    base: str, line: str, value: str
) -> None:
    assert not found("gradients-never-used", STEP.format(base=base, line=line, value=value))


MANUAL = """
import lightning as L
import torch
class Tuned(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
    def training_step(self, batch, batch_idx):
        opt, plan = self.optimizers(), self.lr_schedulers()
        loss = self.model(**batch).loss
        self.manual_backward(loss)
        {step}
    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=2e-5)
"""


@pytest.mark.parametrize(
    ("step", "fires"),
    [
        ("plan.step()", True),
        ("opt.zero_grad()", True),
        ("opt.step(); plan.step()", False),
        ("self.optimizers().step()", False),
        ("for one in (opt, plan):\n            one.step()", False),
    ],
)
def test_a_manual_module_has_to_step_its_optimizer(step: str, fires: bool) -> None:
    told = [one.message for one in found("gradients-never-used", MANUAL.format(step=step))]
    assert any("no optimizer steps" in one for one in told) is fires
