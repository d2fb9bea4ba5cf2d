"""Which losses that a loop collects hold on to their graphs, and which engines of vLLM take the training's memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.lint import lint

START = """
import torch
from collections import deque
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained("model")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
"""
LOOP = """
kept = {made}
for step, batch in enumerate(loader):
    loss = model(**batch).loss
    loss.backward({given})
    optimizer.step()
    optimizer.zero_grad()
    {keep}
"""
EVALUATED = """
def evaluate(model, loader):
    total = 0.0
    for batch in loader:
        total = total + model(**batch).loss
    return total / len(loader)
"""


def severities(folder: Path, text: str, rule: str = "losses-kept-with-graph") -> list[str]:
    path = folder / "train.py"
    path.write_text(START + text, encoding="utf-8")
    return [finding.severity for finding in lint([path], select=[rule]).findings]


def loop(keep: str, made: str = "[]", given: str = "") -> str:
    return LOOP.format(keep=keep, made=made, given=given)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (loop("kept.append(loss)"), "warning"),
        (loop("kept.append(loss)", given="retain_graph=True"), "error"),
        (loop("kept += [loss]"), "warning"),
        # A list keeps the graph that the loss has, wherever it is put there.
        (loop("with torch.no_grad():\n        kept.append(loss)"), "warning"),
        (loop("kept += loss", "0.0"), "warning"),
        (loop("kept = kept + loss / 4", "0.0"), "warning"),
        (loop("kept['loss'].append(loss.cpu())", "{'loss': []}"), "warning"),
        (EVALUATED + "print(evaluate(model, rows))", "error"),
    ],
)
def test_a_graph_that_is_kept(tmp_path: Path, text: str, expected: str) -> None:
    assert severities(tmp_path, text) == [expected]


@pytest.mark.parametrize(
    "text",
    [
        loop("kept.append(loss.item())"),
        loop("kept.append(loss.detach().cpu())"),
        loop("kept.append(float(loss))"),
        loop("kept.append(loss)", "deque(maxlen=20)"),
        loop("kept.append(step)"),
        loop("with torch.no_grad():\n        kept += loss", "0.0"),
        loop("with torch.no_grad():\n        kept['loss'] += loss", "Metrics()"),
        loop("loss = loss.item(); kept.append(loss)"),
        loop("kept = kept + loss; kept = kept.detach()", "0.0"),
        loop("kept += loss\n    if step % 50 == 0:\n        kept = 0.0", "0.0"),
        loop("kept.append(loss)\n    if step % 50 == 0:\n        kept.clear()"),
        EVALUATED,
        EVALUATED + "with torch.no_grad():\n    print(evaluate(model, rows))",
        "@torch.inference_mode()" + EVALUATED + "print(evaluate(model, rows))",
        "for rows in chunks:\n    total = 0\n    for batch in rows:\n        total += model(**batch).loss\n"
        "    total.backward()\n    optimizer.step()",
        "kept = []\nfor batch in loader:\n    kept.append(model(**batch).loss)\ntorch.stack(kept).mean().backward()",
        "for rows in chunks:\n    kept = []\n    for batch in rows:\n        loss = model(**batch).loss\n"
        "        loss.backward()\n        kept.append(loss)\n    optimizer.step()",
    ],
)
def test_a_loss_without_its_graph_or_for_backward(tmp_path: Path, text: str) -> None:
    assert severities(tmp_path, text) == []


def test_the_fix_lets_the_graph_go(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(START + loop("kept += loss / 4", "0.0"), encoding="utf-8")
    report = lint([tmp_path], select=["losses-kept-with-graph"], fix=True)
    assert not report.findings
    assert "kept += (loss / 4).detach()" in (tmp_path / "train.py").read_text(encoding="utf-8")


TRAINING = """
from vllm import LLM
def main(args):
    {engine}
    for batch in loader:
        model(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
"""


@pytest.mark.parametrize(
    ("engine", "expected"),
    [
        ("sampler = LLM('model')", ["warning"]),
        ("sampler = LLM('model', gpu_memory_utilization=0.85)", ["warning"]),
        ("sampler = LLM('model', gpu_memory_utilization=0.3)", []),
        ("sampler = LLM('model', gpu_memory_utilization=args.share)", []),
        ("sampler = LLM('model', **args.engine)", []),
        ("sampler = LLM('model', device='cuda:1')", []),
        ("sampler = LLM('model', enable_sleep_mode=True)", []),
        ("sampler = LLM('model') if args.generate else None", []),
        ("answers = LLM('model').generate(rows); torch.cuda.set_device(1)", []),
    ],
)
def test_an_engine_beside_training(tmp_path: Path, engine: str, expected: list[str]) -> None:
    assert severities(tmp_path, TRAINING.format(engine=engine), "vllm-beside-training") == expected


def test_an_engine_in_another_function_may_run_without_training(tmp_path: Path) -> None:
    text = (
        TRAINING.format(engine="pass")
        + "\ndef answer(rows):\n    return LLM('model').generate(rows)\n"
    )
    assert severities(tmp_path, text, "vllm-beside-training") == []


def test_a_sum_of_many_terms_is_judged(tmp_path: Path) -> None:
    terms = " + ".join(["scale"] * 900)
    lines = f"scale = 1\n    total = total + {terms}\n    losses.append({terms})"
    text = LOOP.format(made="[]", given="", keep=f"kept.append(loss)\n    {lines}")
    assert severities(tmp_path, text)
