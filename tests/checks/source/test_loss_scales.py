"""Losses that get probabilities, logits or classes where they take another (SRC120), however the script is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checks.source.table import codes

HEAD = """
import torch.nn as nn
import torch.nn.functional as F
ref = AutoModelForCausalLM.from_pretrained("org/ref")
logits = model(**batch).logits
labels = batch["labels"]
"""
WRONG = {
    "function": "loss = F.cross_entropy(torch.softmax(logits, -1), labels)",
    "helper": """
def probs(m, b):
    return F.softmax(m(**b).logits, dim=-1)
def loss_of(scores, labels):
    return F.cross_entropy(scores.view(-1, scores.size(-1)), labels.view(-1))
loss = loss_of(probs(model, batch), labels)
""",
    "shifted": """
p = logits.softmax(-1)
loss = nn.CrossEntropyLoss()(p[..., :-1, :].contiguous().view(-1, 9), labels[..., 1:].contiguous().view(-1))
""",
    "trainer": """
class Own(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        labels = inputs.pop("labels")
        scores = nn.functional.softmax(model(**inputs).logits, dim=-1)
        return F.cross_entropy(scores.transpose(1, 2), labels, reduction="sum") / num_items_in_batch
Own(model=model, train_dataset=ds).train()
""",
    "layers in a row, moved": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Sequential(nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 1), nn.Sigmoid())
    def forward(self, x):
        return self.head(x).squeeze(-1)
net = Net().to("cuda")
loss = nn.BCEWithLogitsLoss()(net(x), y)
""",
    "prepared": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(8, 4)
    def forward(self, x):
        return F.softmax(self.out(x), dim=1)
accelerator = Accelerator()
opt = torch.optim.AdamW(Net().parameters())
net, opt = accelerator.prepare(Net(), opt)
criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
loss = criterion(net(x), y)
""",
    "dictionary": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(8, 4)
    def forward(self, x):
        return {"logits": self.out(x).sigmoid()}
loss = F.binary_cross_entropy_with_logits(Net()(x)["logits"], y)
""",
    "argmax": "loss = F.cross_entropy(logits.argmax(-1).float(), labels)",
    "nll of logits": "loss = F.nll_loss(logits[:, :-1].reshape(-1, 9), labels[:, 1:].reshape(-1))",
    "nll of a temperature": "loss = nn.NLLLoss()(logits / 0.7, labels)",
    "nll of probabilities": "loss = nn.NLLLoss()(torch.softmax(logits, dim=-1), labels)",
    "divergence of probabilities": (
        "loss = F.kl_div(F.softmax(logits / T, -1), F.softmax(ref(**batch).logits / T, -1), reduction='batchmean')"
    ),
    "divergence of logits": "loss = F.kl_div(logits / 2.0, F.softmax(ref(**batch).logits / 2.0, -1))",
    "divergence, log target": (
        "loss = nn.KLDivLoss(reduction='sum')(logits.log_softmax(-1), ref(**batch).logits.log_softmax(-1))"
    ),
    "divergence, target is none": (
        "loss = F.kl_div(F.log_softmax(logits, -1), F.softmax(ref(**batch).logits, -1), log_target=True)"
    ),
}
RIGHT = {
    "logits": "loss = F.cross_entropy(logits.view(-1, 9), labels.view(-1))",
    "log-probabilities": "loss = F.cross_entropy(logits.log_softmax(-1), labels)",
    "soft targets": "loss = F.cross_entropy(logits, torch.softmax(ref(**batch).logits, -1))",
    "nll": "loss = F.nll_loss(F.log_softmax(logits, dim=-1).view(-1, 9), labels.view(-1))",
    "nll of a logarithm": "loss = nn.NLLLoss()(torch.log(logits.softmax(-1) + 1e-9), labels)",
    "divergence": "loss = F.kl_div(F.log_softmax(logits / T, -1), F.softmax(ref(**batch).logits / T, -1))",
    "divergence of a logarithm": "loss = F.kl_div(logits.softmax(-1).log(), F.softmax(ref(**batch).logits, -1))",
    "divergence, both logarithms": (
        "loss = F.kl_div(logits.log_softmax(-1), ref(**batch).logits.log_softmax(-1), log_target=True)"
    ),
    "probabilities of the binary one": "loss = F.binary_cross_entropy(torch.sigmoid(logits[..., 0]), y)",
    "a gate": "loss = F.cross_entropy(logits * torch.sigmoid(gate), labels)",
    "accuracy beside it": (
        "probs = logits.softmax(-1)\nloss = F.cross_entropy(logits, labels)\nacc = (probs.argmax(-1) == labels).sum()"
    ),
    "one of two": "scores = logits.softmax(-1) if hard else logits\nloss = F.cross_entropy(scores, labels)",
    "classes as labels": "loss = F.cross_entropy(logits, ref(**batch).logits.argmax(-1))",
}


@pytest.mark.parametrize("case", WRONG)
def test_a_loss_on_another_scale_is_told(case: str, tmp_path: Path) -> None:
    assert codes(HEAD + WRONG[case], tmp_path, "SRC120") == ["SRC120e"]


@pytest.mark.parametrize("case", RIGHT)
def test_a_loss_on_its_own_scale_is_left_alone(case: str, tmp_path: Path) -> None:
    assert codes(HEAD + RIGHT[case], tmp_path, "SRC120") == []
