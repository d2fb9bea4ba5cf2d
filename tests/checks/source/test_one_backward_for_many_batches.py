"""Which sums of losses keep the graphs of many batches until one backward pass."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.lint import lint

START = """
import torch
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained("model").cuda()
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-5)
"""


def count(folder: Path, text: str) -> int:
    """Findings of the rule on a script."""
    path = folder / "train.py"
    path.write_text(START + text, encoding="utf-8")
    return len(lint([path], select=["one-backward-for-many-batches"]).findings)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(
            "for step in range(100):\n    total = 0.0\n    for _ in range(16):\n"
            "        batch = {k: v.cuda() for k, v in next(batches).items()}\n"
            "        total = total + model(**batch).loss\n    (total / 16).backward()\n    optimizer.step()\n",
            id="a sum, next()",
        ),
        pytest.param(
            "for group in groups:\n    total = 0\n    for batch in group:\n        out = model(**batch)\n"
            "        total += out.loss / len(group)\n    total.backward()\n    optimizer.step()\n",
            id="a sum, divided",
        ),
        pytest.param(
            "for group in groups:\n    losses = []\n    for batch in group:\n"
            "        losses.append(model(**batch).loss)\n"
            "    torch.stack(losses).mean().backward()\n    optimizer.step()\n",
            id="a list",
        ),
        pytest.param(
            "total = 0.0\nfor step, batch in enumerate(loader):\n    total = total + model(**batch).loss\n"
            "    if (step + 1) % 8 == 0:\n        (total / 8).backward()\n        optimizer.step()\n"
            "        optimizer.zero_grad()\n        total = 0.0\n",
            id="a condition on the step",
        ),
        pytest.param(
            "def train(model, loader):\n    total = 0.0\n    for batch in loader:\n"
            "        total = total + model(**batch).loss\n    total.backward()\n    optimizer.step()\n"
            "for epoch in range(3):\n    train(model, loader)\n",
            id="an epoch",
        ),
        pytest.param(
            "from accelerate import Accelerator\naccelerator = Accelerator()\n"
            "for group in groups:\n    total = 0.0\n    for batch in group:\n        loss = model(**batch).loss\n"
            "        total = total + loss\n    accelerator.backward(total)\n    optimizer.step()\n",
            id="accelerate",
        ),
    ],
)
def test_graphs_of_many_batches(tmp_path: Path, text: str) -> None:
    assert count(tmp_path, text) == 1


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(
            "for group in groups:\n    total = 0.0\n    for batch in group:\n        loss = model(**batch).loss / 16\n"
            "        loss.backward()\n        total += loss.item()\n    optimizer.step()\n",
            id="a backward pass for each",
        ),
        pytest.param(
            "for step, batch in enumerate(loader):\n    loss = model(**batch).loss / 8\n    loss.backward()\n"
            "    if (step + 1) % 8 == 0:\n        optimizer.step()\n        optimizer.zero_grad()\n",
            id="usual accumulation",
        ),
        pytest.param(
            "for batch in loader:\n    out = model(**batch)\n    total = 0.0\n    for head in heads:\n"
            "        total = total + head(out.logits)\n    total.backward()\n    optimizer.step()\n",
            id="several heads",
        ),
        pytest.param(
            "for batch in loader:\n    total = 0.0\n    for side in ('chosen', 'rejected'):\n"
            "        total = total + model(**batch[side]).loss\n    total.backward()\n    optimizer.step()\n",
            id="two sides",
        ),
        pytest.param(
            "for document in documents:\n    total, state = 0.0, None\n    for chunk in document:\n"
            "        out = model(**chunk, past_key_values=state)\n        state = out.past_key_values\n"
            "        total = total + out.loss\n    total.backward()\n    optimizer.step()\n",
            id="a state from chunk to chunk",
        ),
        pytest.param(
            "def evaluate():\n    total = 0.0\n    with torch.no_grad():\n        for batch in held_out:\n"
            "            total = total + model(**batch).loss\n    return total\n"
            "for batch in loader:\n    loss = model(**batch).loss\n    loss.backward()\n"
            "    optimizer.step()\nevaluate()\n",
            id="an evaluation",
        ),
        pytest.param(
            "for batch in loader:\n    loss = model(**batch).loss + 0.1 * model(**batch, output_attentions=True).loss\n"
            "    loss.backward()\n    optimizer.step()\n",
            id="two terms",
        ),
    ],
)
def test_sound_sums(tmp_path: Path, text: str) -> None:
    assert count(tmp_path, text) == 0
