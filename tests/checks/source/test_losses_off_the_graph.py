"""Losses that are made of a tensor without a graph alone, and those that only look like it."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.lint import lint

LOOP = """
import torch
import torch.nn.functional as F
from transformers import AutoModelForCausalLM
from losses import scaled
model = AutoModelForCausalLM.from_pretrained("some/model")
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)
for batch in batches:
    out = model(**batch)
    {lines}
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
HELPER = """
import torch
def scaled(out, share):
    value = {value}
    return {returned}
"""
CUSTOM = """
import torch
import torch.nn.functional as F
from transformers import Trainer
class Focal(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        labels = inputs.pop("labels")
        outputs = model(**inputs)
        {lines}
        loss = F.cross_entropy(logits.view(-1, logits.size(-1)), labels.view(-1), reduction="sum") / num_items_in_batch
        {after}
        return (loss, outputs) if return_outputs else loss
"""


def errors(tmp_path: Path, **files: str) -> list[str]:
    """The errors of the rule on these files."""
    for name, text in files.items():
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
    report = lint([str(tmp_path / f"{name}.py") for name in files])
    return [
        one.message for one in report.findings if one.code == "SRC083" and one.severity == "error"
    ]


@pytest.mark.parametrize(
    ("lines", "value", "returned", "fires"),
    [
        ("loss = scaled(out, 0.5) / 4", "out.loss.item() * share", "torch.tensor(value, requires_grad=True)", True),
        ("loss = scaled(out, 0.5)", "float(out.loss)", "torch.tensor([value], requires_grad=True).sum()", True),
        ("loss = scaled(out, 0.5) / 4", "out.loss * share", "value.clone()", False),
        # A penalty of one's own beside the model's loss.
        ("loss = out.loss + scaled(out, 0.5)", "1", "torch.tensor(value * share, requires_grad=True)", False),
        ("loss = scaled(out, 1)\n    loss = loss + out.loss", "0.0", "torch.tensor(value, requires_grad=True)", False),
        # The embeddings begin a graph of their own, and the model is in it.
        (
            "given = embed(batch).detach()\n    given.requires_grad_(True)\n    loss = model(inputs_embeds=given).loss",
            "1",
            "value",
            False,
        ),
    ],
)  # fmt: skip
def test_a_helper_that_makes_the_loss_a_new_tensor(
    tmp_path: Path, lines: str, value: str, returned: str, fires: bool
) -> None:
    helper = HELPER.format(value=value, returned=returned)
    assert bool(errors(tmp_path, train=LOOP.format(lines=lines), losses=helper)) is fires


@pytest.mark.parametrize(
    ("lines", "after", "fires"),
    [
        ("logits = outputs.logits.detach()\n        logits.requires_grad_(True)", "pass", True),
        ("logits = outputs.logits", "loss = torch.tensor(loss.item(), requires_grad=True)", True),
        ("logits = outputs.logits.float()", "pass", False),
        # A head of the trainer's own is trained on frozen features.
        (
            "h = outputs.hidden_states[-1].detach()\n        h.requires_grad_(True)\n        logits = self.head(h)",
            "pass",
            False,
        ),
        (
            "h = outputs.logits.detach()\n        h.requires_grad_(True)\n        logits = h @ self.out.weight.T",
            "pass",
            False,
        ),
        # The gradient of the logits is handed on by hand.
        (
            "logits = outputs.logits.detach()\n        logits.requires_grad_(True)",
            "loss.backward()\n        outputs.logits.backward(logits.grad)",
            False,
        ),
    ],
)  # fmt: skip
def test_a_loss_that_a_trainer_is_given(
    tmp_path: Path, lines: str, after: str, fires: bool
) -> None:
    assert bool(errors(tmp_path, train=CUSTOM.format(lines=lines, after=after))) is fires


@pytest.mark.parametrize(
    ("loss", "fires"),
    [
        ("out.loss.detach().requires_grad_()", True),
        ("out.loss", False),
        ("(out.loss * 1.0).requires_grad_()", False),
    ],
)
def test_a_dictionary_of_a_lightning_step(tmp_path: Path, loss: str, fires: bool) -> None:
    text = (
        "import lightning as L\nclass M(L.LightningModule):\n    def training_step(self, batch, i):\n"
        f"        out = self.net(**batch)\n        loss = {loss}\n        return {{'loss': loss}}\n"
    )
    assert bool(errors(tmp_path, module=text)) is fires


@pytest.mark.parametrize(("decorator", "fires"), [("@torch.no_grad()", True), ("", False)])
def test_a_forced_loss_of_a_function_without_gradients_is_an_error(
    tmp_path: Path, decorator: str, fires: bool
) -> None:
    helper = f"import torch\n{decorator}\ndef scaled(out, share):\n    return out.loss * share\n"
    lines = "loss = scaled(out, 1)\n    loss.requires_grad_(True)"
    assert bool(errors(tmp_path, train=LOOP.format(lines=lines), losses=helper)) is fires
