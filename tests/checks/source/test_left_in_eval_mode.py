"""Which training steps find their model in evaluation mode, and which do not."""

from __future__ import annotations

import pytest

from truetune.checks.rule_catalogue import find_rule
from truetune.checks.rule_runner import run_rule
from truetune.source.parsed_source_file import parse_module

HEAD = """
import torch
from accelerate import Accelerator
from transformers import AutoModelForCausalLM
accelerator = Accelerator()
model = AutoModelForCausalLM.from_pretrained("m")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
"""
STEP = "model(**batch).loss.backward(); optimizer.step(); optimizer.zero_grad()"
FUNCTION = """
def evaluate(model, loader):
    model.eval()
    with torch.no_grad():
        return sum(model(**b).loss.item() for b in loader)
"""
LEFT = {
    "folds without train()": f"""
for fold in folds:
    model = AutoModelForCausalLM.from_pretrained("m")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    for epoch in range(3):
        for batch in fold:
            {STEP}
        model.eval()
        print(model(**probe).loss)
""",
    "between steps, train() at the epoch": f"""{FUNCTION}
for epoch in range(3):
    model.train()
    for step, batch in enumerate(loader):
        {STEP}
        if step % 100 == 0:
            print(evaluate(model, held_out))
""",
    "behind an epoch": f"""{FUNCTION}
model.train()
for epoch in range(3):
    for batch in loader:
        {STEP}
    evaluate(model, held_out)
""",
    "accelerate": """
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
model.train()
for step, batch in enumerate(loader):
    loss = model(**batch).loss
    accelerator.backward(loss)
    optimizer.step()
    if (step + 1) % 50 == 0:
        unwrapped = accelerator.unwrap_model(model)
        unwrapped.eval()
        unwrapped.generate(**prompts)
""",
    "class": """
class Loop:
    def __init__(self, model, optimizer):
        self.model, self.optimizer = model, optimizer
    def validate(self):
        self.model.eval()
        with torch.no_grad():
            return [self.model(**b).loss for b in held_out]
    def fit(self, loader):
        self.model.train()
        step = 0
        while step < 1000:
            for batch in loader:
                self.model(**batch).loss.backward()
                self.optimizer.step()
                step += 1
                if step % 10 == 0:
                    self.validate()
Loop(model, optimizer).fit(loader)
""",
    "train(False)": f"""
for batch in loader:
    {STEP}
    if step % 10 == 0:
        model.train(False)
        print(model(**probe).loss)
""",
}
BACK = {
    "train() behind it": f"""{FUNCTION}
model.train()
for step, batch in enumerate(loader):
    {STEP}
    if step % 100 == 0:
        evaluate(model, held_out)
        model.train()
""",
    "each step": f"""{FUNCTION}
for step, batch in enumerate(loader):
    model.train()
    {STEP}
    if step % 100 == 0:
        evaluate(model, held_out)
""",
    "kept mode": f"""
for step, batch in enumerate(loader):
    {STEP}
    was = model.training
    model.eval()
    print(model(**probe).loss)
    model.train(was)
""",
    "leaves the loop": f"""{FUNCTION}
model.train()
for step, batch in enumerate(loader):
    {STEP}
    if step > 1000:
        evaluate(model, held_out)
        break
""",
    "context manager": f"""
from contextlib import contextmanager
@contextmanager
def evaluating(model):
    model.eval()
    try:
        yield
    finally:
        model.train()
for step, batch in enumerate(loader):
    {STEP}
    with evaluating(model):
        print(model(**probe).loss)
""",
    "folds": f"""
for fold in folds:
    model = AutoModelForCausalLM.from_pretrained("m")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    for epoch in range(3):
        model.train()
        for batch in fold:
            {STEP}
        model.eval()
        for batch in held_out:
            model(**batch)
""",
    "other model": f"""
teacher = AutoModelForCausalLM.from_pretrained("t")
for step, batch in enumerate(loader):
    teacher.eval()
    {STEP}
""",
    "by phase": """
for epoch in range(3):
    for phase in ("train", "eval"):
        if phase == "train":
            model.train()
        else:
            model.eval()
        for batch in loaders[phase]:
            loss = model(**batch).loss
            if phase == "train":
                loss.backward()
                optimizer.step()
""",
    "by an unknown phase": """
for epoch in range(3):
    for phase in phases:
        if phase == "train":
            model.train()
        else:
            model.eval()
        for batch in loaders[phase]:
            loss = model(**batch).loss
            if phase == "train":
                loss.backward()
                optimizer.step()
""",
    "frozen norms": f"""
for epoch in range(3):
    model.train()
    for batch in loader:
        {STEP}
        for part in model.modules():
            if isinstance(part, torch.nn.BatchNorm1d):
                part.eval()
""",
    "trainer": """
from transformers import Trainer, TrainerCallback
class Show(TrainerCallback):
    def on_step_end(self, args, state, control, model=None, **kwargs):
        model.eval()
        model.generate(**probe)
Trainer(model=model, train_dataset=rows, callbacks=[Show()]).train()
""",
}
LIGHTNING = """
import lightning as L
import torch
from transformers import AutoModelForCausalLM
class Tuned(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = AutoModelForCausalLM.from_pretrained("m")
    def training_step(self, batch, i):
        if i % 100 == 0:
            self.sample()
        return self.model(**batch).loss
    def sample(self):
        self.model.eval()
        self.model.generate(**probe){}
    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-4)
L.Trainer().fit(Tuned(), loader)
"""


def count_findings(text: str) -> int:
    rule = find_rule("trained-in-eval-mode")
    return len(run_rule(parse_module(text, "train.py"), rule).findings)


@pytest.mark.parametrize("loop", LEFT.values(), ids=LEFT)
def test_models_left_in_evaluation_mode_are_found(loop: str) -> None:
    assert count_findings(HEAD + loop) == 1


@pytest.mark.parametrize("loop", BACK.values(), ids=BACK)
def test_models_that_are_switched_back_are_left_alone(loop: str) -> None:
    assert count_findings(HEAD + loop) == 0


def test_hooks_of_lightning() -> None:
    assert count_findings(LIGHTNING.format("")) == 1
    assert count_findings(LIGHTNING.format("\n        self.model.train()")) == 0
    assert count_findings(LIGHTNING.replace("training_step", "validation_step").format("")) == 0


CLASSIFIER = """
import {lightning} as L
import torch
from torch import nn
from transformers import AutoConfig, AutoModel
class Tagger(L.LightningModule):
    def __init__(self, name):
        super().__init__()
        {load}
        self.head = nn.Linear(768, 3)
    def training_step(self, batch, i):
        return nn.functional.cross_entropy(self.head(self.encoder(**batch).last_hidden_state[:, 0]), batch["labels"])
    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=2e-5)
{rest}
L.Trainer(max_epochs=3).fit(Tagger("{name}"), loader)
"""
ENCODER = "self.encoder = AutoModel.from_pretrained(name)"
WITH_RATE = (
    "self.encoder = AutoModel.from_pretrained("
    "name, config=AutoConfig.from_pretrained(name, attention_dropout={rate}))"
)
NETWORK = """
import torch
from torch import nn
from transformers import AutoModel
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = AutoModel.from_pretrained("google-bert/bert-base-cased")
        self.head = nn.Linear(768, 2)
    def forward(self, batch):
        return self.head(self.encoder(**batch).pooler_output)
net = Net()
optimizer = torch.optim.AdamW(net.parameters(), lr=2e-5)
for batch in loader:
    loss = nn.functional.cross_entropy(net(batch), batch["labels"])
    loss.backward()
    optimizer.step()
"""
BERT_LOOP = (
    HEAD.replace('"m"', '"roberta-base"')
    + f"""
for batch in loader:
    {STEP}
"""
)


def classifier(
    load: str = ENCODER, *, name: str = "roberta-base", lightning: str = "lightning", rest: str = ""
) -> str:
    return CLASSIFIER.format(load=load, name=name, lightning=lightning, rest=rest)


AS_LOADED = {
    "a family with dropout": classifier(),
    "pytorch_lightning": classifier(lightning="pytorch_lightning", name="google/electra-small"),
    "a rate that the script sets": classifier(WITH_RATE.format(rate=0.2), name="own/model"),
    "a load in a function": classifier(
        "self.encoder = load(name)",
        rest="def load(name):\n    return AutoModel.from_pretrained(name)",
    ),
    "checkpointing": classifier(
        ENCODER + "\n        self.encoder.gradient_checkpointing_enable()", name="Qwen/Qwen3-0.6B"
    ),
    "an own loop": BERT_LOOP,
    "a part of an own network": NETWORK,
}
NOT_AS_LOADED = {
    "train() behind the load": classifier(ENCODER + "\n        self.encoder.train()"),
    "train() in a hook": classifier().replace(
        "    def configure",
        "    def on_fit_start(self):\n        self.encoder.train()\n    def configure",
    ),
    "frozen": classifier(ENCODER + "\n        self.encoder.requires_grad_(False)"),
    "frozen by no_grad": classifier().replace(
        "        return nn",
        "        with torch.no_grad():\n            self.encoder(**batch)\n        return nn",
    ),
    "no dropout": classifier(name="Qwen/Qwen3-0.6B"),
    "a rate of 0": classifier(WITH_RATE.format(rate=0.0)),
    "an older Lightning": "# pip install lightning==2.1.3\n" + classifier(),
    "an own loop with train()": BERT_LOOP.replace("for batch", "model.train()\nfor batch"),
    "a trainer": BERT_LOOP.split("optimizer =")[0]
    + "from transformers import Trainer\nTrainer(model=model, train_dataset=rows).train()\n",
    "an evaluation": BERT_LOOP.split("optimizer =")[0] + "print(model(**batch).loss)\n",
    "a network that is switched": NETWORK.replace("optimizer =", "net.train()\noptimizer ="),
}


@pytest.mark.parametrize("script", AS_LOADED.values(), ids=AS_LOADED)
def test_models_that_stay_as_they_were_loaded(script: str) -> None:
    assert count_findings(script) == 1


@pytest.mark.parametrize("script", NOT_AS_LOADED.values(), ids=NOT_AS_LOADED)
def test_models_that_something_switches_or_that_have_no_dropout(script: str) -> None:
    assert count_findings(script) == 0
