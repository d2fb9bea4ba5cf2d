"""Models in training mode that generate (SRC053): adapters that are loaded to be trained, Unsloth, callbacks."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.lint import lint

LOADED = """
from peft import PeftModel
from transformers import AutoModelForCausalLM

base = AutoModelForCausalLM.from_pretrained("m")
model = PeftModel.from_pretrained(base, "adapter", is_trainable={flag})
{behind}
model.generate(**inputs, max_new_tokens=20)
"""
UNSLOTH = """
from unsloth import FastLanguageModel

model, tokenizer = FastLanguageModel.from_pretrained("m")
{behind}
model.generate(**inputs, max_new_tokens=20)
"""
CALLBACK = """
from transformers import TrainerCallback

class Sample(TrainerCallback):
    def {hook}(self, args, state, control, {parameters}**kwargs):
        {before}
        print(model.generate(**self.inputs, max_new_tokens=20))
"""
TRAINING = "FastLanguageModel.for_training(model)"
INFERENCE = "FastLanguageModel.for_inference(model)"


def callback(hook: str, parameters: str = "model=None, ", before: str = "pass") -> str:
    """A callback that generates in one of its methods."""
    return CALLBACK.format(hook=hook, parameters=parameters, before=before)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (LOADED.format(flag=True, behind=""), True),
        (LOADED.format(flag=True, behind="model.print_trainable_parameters()"), True),
        (LOADED.format(flag=True, behind="model.eval()"), False),
        (LOADED.format(flag=False, behind=""), False),
        (UNSLOTH.format(behind=TRAINING), True),
        (UNSLOTH.format(behind=f"{TRAINING}\n{INFERENCE}"), False),
        (UNSLOTH.format(behind=INFERENCE), False),
        (callback("on_step_end"), True),
        (callback("on_epoch_end", "", 'model = kwargs["model"]'), True),
        (callback("on_step_end", before="model.eval()"), False),
        (callback("on_evaluate"), False),
        (callback("on_step_end", "", "model = self.other"), False),
    ],
)
def test_who_switched_the_mode(text: str, found: bool, tmp_path: Path) -> None:
    """Who switches the mode is known by other names than `model.train()`, and who switches it back too."""
    path = tmp_path / "answer.py"
    path.write_text(text, encoding="utf-8")
    assert bool(lint([path], select=("SRC053",)).findings) == found


HEAD = """
import torch
from contextlib import contextmanager
from torch import nn
from transformers import AutoModel, AutoModelForCausalLM, Trainer, TrainingArguments
from peft import LoraConfig, get_peft_model
model = AutoModelForCausalLM.from_pretrained("{name}")
"""
OWN = HEAD.format(name="me/own")
QWEN = HEAD.format(name="Qwen/Qwen2.5-0.5B")
DROPPED = "model = get_peft_model(model, LoraConfig(lora_dropout=0.1))\n"
UNDROPPED = "model = get_peft_model(model, LoraConfig(lora_dropout=0.0))\n"
GENERATE = "model.generate(**inputs)\n"
TRAINED = (
    'trainer = Trainer(model=model, args=TrainingArguments("out"{arguments}))\ntrainer.train()\n'
)
LOOP = """
for epoch in range(3):
    model.train()
    for batch in loader:
        model(**batch).loss.backward()
    {between}
    with torch.no_grad():
        print(sum(model(**batch).loss for batch in held_out))
"""
KEEPER = """
class Loop:
    def __init__(self):
        self.model = model
    @torch.no_grad()
    def validate(self):
        {first}
        return [self.model(**batch).loss for batch in held_out]
    def fit(self):
        self.model.train()
        for batch in loader:
            self.model(**batch).loss.backward()
        self.validate()
Loop().fit()
"""
SCORER = """
class Scorer(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = AutoModel.from_pretrained("roberta-base")
        self.drop = nn.Dropout({rate})
    def forward(self, ids):
        return self.drop(self.encoder(ids).pooler_output)
scorer = Scorer().to("cuda")
{behind}
with torch.inference_mode():
    print(scorer(ids))
"""
GUARD = """
@contextmanager
def evaluating(model):
    model.eval()
    yield
    model.train()
model.train()
with evaluating(model), torch.no_grad():
    print(model(**batch).loss)
"""
TAIL = """
model.eval()
for batch in held_out:
    with torch.no_grad():
        print(model(**batch).loss)
    model.train()
"""
LIGHTNING = """
import lightning as L
class Tuner(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = model
    def training_step(self, batch, number):
        return self.model(**batch).loss
    def {hook}(self):
        self.model.generate(**inputs)
L.Trainer().fit(Tuner(), loader)
"""


def is_found(text: str, folder: Path) -> bool:
    path = folder / "train.py"
    path.write_text(text, encoding="utf-8")
    return bool(lint([path], select=["model-left-in-training-mode"]).findings)


@pytest.mark.parametrize(
    "text",
    [
        OWN + LOOP.format(between="pass"),
        QWEN + DROPPED + LOOP.format(between="pass"),
        OWN + KEEPER.format(first="pass"),
        OWN + TRAINED.format(arguments="") + GENERATE,
        OWN + TRAINED.format(arguments="") + "trainer.model.generate(**inputs)\n",
        OWN + TRAINED.format(arguments=", eval_strategy='no'") + GENERATE,
        OWN + SCORER.format(rate=0.2, behind=""),
        OWN + TAIL,
        OWN + LIGHTNING.format(hook="on_train_epoch_end"),
        OWN + "model.eval()\nmodel.train(True)\n" + GENERATE,
        OWN + "model.train()\nwith torch.no_grad():\n    logits = model(**batch).logits\n",
    ],
)
def test_models_are_followed_to_the_last_switch(text: str, tmp_path: Path) -> None:
    assert is_found(text, tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        OWN + GENERATE,
        OWN + LOOP.format(between="model.eval()"),
        QWEN + UNDROPPED + LOOP.format(between="pass"),
        QWEN + TRAINED.format(arguments="") + GENERATE,
        OWN + KEEPER.format(first="self.model.eval()"),
        OWN + TRAINED.format(arguments="") + "trainer.evaluate()\n" + GENERATE,
        OWN + TRAINED.format(arguments=", eval_strategy='epoch'") + GENERATE,
        OWN + TRAINED.format(arguments=", **settings") + GENERATE,
        OWN + SCORER.format(rate=0.2, behind="scorer.eval()"),
        OWN + SCORER.format(rate=0.0, behind=""),
        OWN + GUARD,
        OWN + LIGHTNING.format(hook="on_validation_epoch_end"),
        OWN + "model.train()\nfrom elsewhere import quiet\nquiet(model)\n" + GENERATE,
        OWN + "model.train(bool(input()))\n" + GENERATE,
        # A pass that nothing reads warms up, or gathers the shards of weights.
        OWN + "model.train()\nwith torch.no_grad():\n    model(**batch)\n",
        OWN + "if input():\n    model.train()\nelse:\n    model.generate(**inputs)\n",
        OWN
        + "model.train()\nother = AutoModelForCausalLM.from_pretrained('b')\nother.generate(**inputs)\n",
    ],
)
def test_models_that_may_be_in_evaluation_mode_are_left_alone(text: str, tmp_path: Path) -> None:
    assert not is_found(text, tmp_path)


def test_a_copy_has_a_mode_of_its_own(tmp_path: Path) -> None:
    text = """import copy, torch
from transformers import AutoModelForSequenceClassification
from data import train, val
model = AutoModelForSequenceClassification.from_pretrained("bert-base-uncased")
mean = copy.deepcopy(model).eval()
opt = torch.optim.AdamW(model.parameters(), 2e-5)
model.train()
for batch in train:
    model(**batch).loss.backward()
    opt.step()
    opt.zero_grad()
with torch.no_grad():
    print([mean(**batch).logits.argmax(-1) for batch in val])
"""
    (tmp_path / "loop.py").write_text(text, encoding="utf-8")
    assert not lint([tmp_path / "loop.py"], select=["SRC053"], allow_unjudged=True).findings
