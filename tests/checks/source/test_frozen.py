"""Training in which nothing is trained, or which stops: what ends it is what the finding says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checks.source.table import HEAD
from truetune.checks.findings import Finding
from truetune.checks.lint import lint

LOAD = "from trl import SFTTrainer\nmodel = PeftModel.from_pretrained(model, 'stage-1')\n"
TRAIN = "SFTTrainer(model=model, train_dataset=ds).train()\n"
MERGE = "model = model.merge_and_unload()\n"


def _findings(text: str, rule: str, folder: Path) -> tuple[Finding, ...]:
    path = folder / "train.py"
    path.write_text(HEAD + text)
    return lint([path], select=[rule]).findings


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        (LOAD + TRAIN, "is_trainable"),
        (LOAD + TRAIN + MERGE, "is_trainable"),
        (LOAD + MERGE + TRAIN, "peft_config"),
        (LOAD.replace("'stage-1')", "'stage-1').merge_and_unload()") + TRAIN, "peft_config"),
        (LOAD + "merged = model.merge_and_unload()\n" + TRAIN.replace("=model", "=merged"), "peft_config"),
        ("if args.adapter:\n    " + LOAD.replace("\n", "\n    ") + MERGE + TRAIN, "peft_config"),
        ("def load():\n    return PeftModel.from_pretrained(model, 'a').merge_and_unload()\n"
         "from trl import SFTTrainer\nmodel = load()\n" + TRAIN, "peft_config"),
    ],
)  # fmt: skip
def test_a_frozen_model_is_told_with_what_thaws_it(text: str, remedy: str, tmp_path: Path) -> None:
    (finding,) = _findings(text, "SRC016", tmp_path)
    assert finding.remedy is not None
    assert remedy in finding.remedy
    assert ("merged" in finding.message) == (remedy == "peft_config") == (finding.fix is None)


@pytest.mark.parametrize(
    "text",
    [
        LOAD + MERGE + TRAIN.replace("=ds", "=ds, peft_config=LoraConfig()"),
        "if a:\n    "
        + LOAD.replace("\n", "\n    ")
        + MERGE
        + TRAIN.replace("=ds", "=ds, peft_config=LoraConfig()"),
        LOAD + MERGE + "model.requires_grad_(True)\n" + TRAIN,
        LOAD + MERGE + "model = get_peft_model(model, LoraConfig())\n" + TRAIN,
        LOAD.replace("'stage-1'", "'stage-1', is_trainable=True") + TRAIN,
    ],
)
def test_a_model_that_is_thawed_or_adapted_is_trained(text: str, tmp_path: Path) -> None:
    assert _findings(text, "SRC016", tmp_path) == ()


LOSS = (
    "class Own(Trainer):\n    def compute_loss(self, model, inputs, return_outputs=False{}):\n"
    "        labels = inputs.pop('labels')\n        return distance(model(**inputs), labels)\n"
)
SAYS_FLAG, TAKES = "loss_is_scaled_for_ga", "take num_items_in_batch=None"


@pytest.mark.parametrize(
    ("text", "takes", "flag"),
    [
        (LOSS.format(""), True, True),
        (LOSS.format("") + "TrainingArguments('out')\n", True, False),
        (
            LOSS.format("").replace("labels", "gold").replace("**inputs", "inputs['ids']"),
            True,
            False,
        ),
        (LOSS.format(", num_items_in_batch=None"), False, True),
        (LOSS.format(", **kwargs"), False, True),
    ],
)
def test_a_missing_parameter_is_ended_by_the_parameter(
    text: str, takes: bool, flag: bool, tmp_path: Path
) -> None:
    (finding,) = _findings(text, "SRC013", tmp_path)
    assert finding.remedy is not None
    assert (TAKES in finding.remedy, SAYS_FLAG in finding.remedy) == (takes, flag)


ADAPTED = "model = get_peft_model(model, LoraConfig(r=8))\n"
LOOP = "for name, weight in model.named_parameters():\n    "


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (ADAPTED + LOOP + "weight.requires_grad = False\n", 1),
        (ADAPTED + LOOP + "weight.requires_grad_(False)\n", 1),
        (LOOP + "weight.requires_grad = False\n" + ADAPTED, 0),
        (ADAPTED + LOOP + "if 'lora' not in name:\n        weight.requires_grad = False\n", 0),
        (ADAPTED + LOOP + "weight.requires_grad = 'lora' in name\n", 0),
        (ADAPTED + LOOP + "weight.requires_grad = False\nmodel.set_adapter('default')\n", 0),
    ],
)
def test_a_loop_that_freezes_the_adapter_too(text: str, count: int, tmp_path: Path) -> None:
    imports = "from peft import LoraConfig, get_peft_model\n"
    assert len(_findings(imports + text, "SRC016", tmp_path)) == count


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (LOOP + "weight.requires_grad = 'classifier' in name\n", 1),
        (
            LOOP
            + "weight.requires_grad = any(key in name for key in ('lm_head', 'embed_tokens'))\n",
            1,
        ),
        (LOOP + "if 'lm_head' not in name:\n        weight.requires_grad_(False)\n", 1),
        (
            LOOP
            + "if name.startswith('lora'):\n        continue\n    weight.requires_grad = False\n",
            1,
        ),
        (
            LOOP
            + "kept = 'score' in name or name.endswith('bias')\n    weight.requires_grad = kept\n",
            1,
        ),
        # Some of LoRA's names pass, or may: those in a vision tower as well.
        (LOOP + "weight.requires_grad = 'vision_tower' in name\n", 0),
        (LOOP + "weight.requires_grad = any(key in name for key in ('visual', 'projector'))\n", 0),
        (LOOP + "weight.requires_grad = 'layers.31' in name\n", 0),
        (LOOP + "weight.requires_grad = any(key in name for key in ('embed', 'lora_B'))\n", 0),
        (LOOP + "if 'embed' in name or 'norm' in name:\n        weight.requires_grad = True\n", 0),
        (LOOP + "if 'lora' in name:\n        continue\n    weight.requires_grad = False\n", 0),
        (LOOP + "weight.requires_grad = any(key in name for key in keys())\n", 0),
        (LOOP + "weight.requires_grad = pattern.search(name) is not None\n", 0),
        (
            LOOP
            + "weight.requires_grad = 'head' in name\nfor one in loras(model):\n    one.requires_grad = True\n",
            0,
        ),
    ],
)
def test_a_loop_whose_test_no_name_of_the_adapter_passes(
    text: str, count: int, tmp_path: Path
) -> None:
    imports = "from peft import LoraConfig, get_peft_model\n"
    assert len(_findings(imports + ADAPTED + text, "SRC016", tmp_path)) == count


@pytest.mark.parametrize(
    ("made", "count"),
    [
        ("model = get_peft_model(base, LoraConfig(r=8))\nfreeze(model)\n", 1),
        ("freeze(base)\nmodel = get_peft_model(base, LoraConfig(r=8))\n", 0),
        # Weights of other adapters have other names.
        ("model = get_peft_model(base, IA3Config())\nfreeze(model)\n", 0),
    ],
)
def test_a_helper_that_freezes_by_names(made: str, count: int, tmp_path: Path) -> None:
    (tmp_path / "parts.py").write_text(
        "def freeze(model, keep=('ia3_', 'score')):\n    for name, one in model.named_parameters():\n"
        "        one.requires_grad = any(part in name for part in keep)\n"
    )
    (tmp_path / "train.py").write_text(
        "from peft import IA3Config, LoraConfig, get_peft_model\nfrom transformers import AutoModelForCausalLM\n"
        f"from parts import freeze\nbase = AutoModelForCausalLM.from_pretrained('some/model')\n{made}"
    )
    files = [str(tmp_path / name) for name in ("train.py", "parts.py")]
    assert len(lint(files, select=["SRC016"]).findings) == count


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("model = get_peft_model(model, LoraConfig(r=8, inference_mode=True))\n" + TRAIN, 1),
        (
            "config = LoraConfig(inference_mode=True)\n"
            + TRAIN.replace("=ds", "=ds, peft_config=config"),
            1,
        ),
        ("model = get_peft_model(model, LoraConfig(r=8, inference_mode=False))\n" + TRAIN, 0),
        # What is only asked may be frozen.
        (
            "model = get_peft_model(model, LoraConfig(r=8, inference_mode=True))\nmodel.generate(**batch)\n",
            0,
        ),
        (
            "model = get_peft_model(model, LoraConfig(inference_mode=True))\nmodel.set_adapter('default')\n"
            + TRAIN,
            0,
        ),
    ],
)
def test_an_adapter_that_is_made_for_inference(text: str, count: int, tmp_path: Path) -> None:
    imports = "from peft import LoraConfig, get_peft_model\nfrom trl import SFTTrainer\n"
    assert len(_findings(imports + text, "SRC016", tmp_path)) == count


NETWORK = """import torch
import torch.nn as nn
import torch.nn.functional as F

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(8, 4)
        self.squash = nn.Softmax(dim=-1)
    def forward(self, x):
        return {forward}

net = Net().cuda()
criterion = nn.CrossEntropyLoss()
loss = {loss}
"""


@pytest.mark.parametrize(
    ("forward", "loss", "count"),
    [
        ("torch.softmax(self.out(x), -1)", "F.cross_entropy(net(x), y)", 1),
        ("self.squash(self.out(x))", "criterion(net(x), y)", 1),
        ("self.out(x)", "criterion(net(x).softmax(-1), y)", 1),
        ("self.out(x)", "criterion(net(x), y)", 0),
        ("F.log_softmax(self.out(x), -1)", "F.nll_loss(net(x), y)", 0),
        ("torch.softmax(self.out(x), -1)", "F.nll_loss(net(x).log(), y)", 0),
        ("self.out(x)", "F.cross_entropy(net(x), torch.softmax(y, -1))", 0),
    ],
)
def test_probabilities_are_no_logits(forward: str, loss: str, count: int, tmp_path: Path) -> None:
    text = NETWORK.format(forward=forward, loss=loss)
    assert len(_findings(text, "loss-given-scores-of-another-scale", tmp_path)) == count


@pytest.mark.parametrize(
    ("loss", "count"),
    [
        ("torch.tensor(losses, requires_grad=True).mean()", 1),
        ("torch.tensor(losses, requires_grad=True)", 1),
        ("torch.stack(losses).mean()", 0),
    ],
)
def test_a_loss_of_numbers_has_no_graph(loss: str, count: int, tmp_path: Path) -> None:
    text = f"import torch\nloss = {loss}\nloss.backward()\n"
    assert len(_findings(text, "loss-forced-to-require-grad", tmp_path)) == count
