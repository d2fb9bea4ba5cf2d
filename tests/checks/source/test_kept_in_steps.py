"""What the steps of a Lightning module keep of the model's outputs."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.lint import lint

MODULE = """
import lightning as L
from transformers import AutoModelForCausalLM

class Tuned(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = AutoModelForCausalLM.from_pretrained("some/base")
        self.kept = []

    def {step}(self, batch, number):
        out = self.model(**batch)
        {keep}
        return out.loss
"""


def count(folder: Path, keep: str, step: str = "validation_step") -> int:
    """How often the rule speaks of a module whose step keeps something."""
    path = folder / "tuned.py"
    path.write_text(MODULE.format(keep=keep, step=step), encoding="utf-8")
    return len(lint([str(path)], select=["outputs-kept-on-the-device"]).findings)


@pytest.mark.parametrize(
    "keep",
    ["self.kept.append(out.logits)", 'self.kept.append({"logits": out.logits, "n": number})'],
)
def test_logits_of_every_step_are_found(keep: str, tmp_path: Path) -> None:
    assert count(tmp_path, keep) == 1


@pytest.mark.parametrize(
    ("keep", "step"),
    [
        ("self.kept.append(out.logits.argmax(-1))", "validation_step"),
        ("self.kept.append(out.logits.detach().cpu())", "validation_step"),
        ("parts = []; parts.append(out.logits)", "validation_step"),
        ("self.kept.append(out.logits)", "forward"),
    ],
)
def test_what_stays_small_is_left_alone(keep: str, step: str, tmp_path: Path) -> None:
    assert count(tmp_path, keep, step) == 0


LOOP = """
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("some/base").cuda()
kept = []
for step, batch in enumerate(loader):
    out = {made}
    {keep}
"""
FORWARD = "model(**batch, output_hidden_states=True)"
SCORES = "model.generate(**batch, return_dict_in_generate=True, output_scores=True)"


def count_in_loop(folder: Path, made: str, keep: str) -> int:
    """How often the rule speaks of a hand-written loop."""
    path = folder / "loop.py"
    path.write_text(LOOP.format(made=made, keep=keep), encoding="utf-8")
    return len(lint([str(path)], select=["outputs-kept-on-the-device"]).findings)


@pytest.mark.parametrize(
    ("made", "keep"),
    [
        (
            FORWARD,
            "if step % 10 == 0:\n        kept.append({'loss': 1, 'h': out.hidden_states[-1]})",
        ),
        (FORWARD, "if (step + 1) % 50 == 0:\n        kept.append(out.logits)"),
        (SCORES, "kept.append(out)"),
        (SCORES, "kept.append(out.scores)"),
        (SCORES.replace("output_scores", "output_hidden_states"), "kept.append((step, out))"),
    ],
)
def test_what_every_tenth_step_or_generation_keeps(tmp_path: Path, made: str, keep: str) -> None:
    assert count_in_loop(tmp_path, made, keep) == 1


@pytest.mark.parametrize(
    ("made", "keep"),
    [
        (FORWARD, "if step % 1000 == 0:\n        kept.append(out.logits)"),
        (FORWARD, "if step == 10:\n        kept.append(out.logits)"),
        (FORWARD, "if step % 10 != 0:\n        kept.append(out.logits)"),
        (FORWARD, "if step % 10 == 0:\n        kept.append(out.logits.mean().item())"),
        (SCORES, "kept.append(out.sequences)"),
        (SCORES.replace(", output_scores=True", ""), "kept.append(out)"),
        ("model.generate(**batch)", "kept.append(out)"),
    ],
)
def test_generations_and_conditions_that_keep_little(tmp_path: Path, made: str, keep: str) -> None:
    assert count_in_loop(tmp_path, made, keep) == 0


HANDED = """
import lightning as L
from collections import deque
from torchmetrics import Metric
from transformers import AutoModelForCausalLM

class Stats({base}):
    def __init__(self):
        super().__init__()
        self.kept = {holder}

    def update(self, scores, number):
        {keep}

    def reset(self):
        self.kept = {holder}

class Tuned(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = AutoModelForCausalLM.from_pretrained("some/base")
        self.stats = Stats()

    def training_step(self, batch, number):
        out = self.model(**batch)
        {call}
        return {{"loss": out.loss, "logits": out.logits}}
"""
UPDATE = "self.stats.update(out.logits, number)"


def count_handed(folder: Path, **parts: str) -> int:
    """How often the rule speaks of a module that hands its outputs to an object."""
    parts = {
        "base": "object",
        "holder": "[]",
        "keep": "self.kept.append(scores.detach())",
        "call": UPDATE,
        **parts,
    }
    path = folder / "tuned.py"
    path.write_text(HANDED.format(**parts) + parts.get("more", ""), encoding="utf-8")
    return len(lint([str(path)], select=["outputs-kept-on-the-device"]).findings)


CALLBACK = """
class Watch(L.Callback):
    def __init__(self):
        self.seen = []

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, number):
        self.seen.append(outputs["logits"]{moved})
"""


@pytest.mark.parametrize(
    "parts",
    [
        {},
        {"holder": "deque()"},
        {"holder": "{}", "keep": "self.kept[number] = scores.float()"},
        {"holder": "{'a': []}", "keep": "self.kept['a'].append(scores)"},
        {"base": "Metric", "call": "self.stats(out.logits, number)"},
        {"keep": "pass", "more": CALLBACK.format(moved="")},
    ],
)
def test_what_an_object_keeps_that_the_step_calls(parts: dict[str, str], tmp_path: Path) -> None:
    assert count_handed(tmp_path, **parts) == 1


@pytest.mark.parametrize(
    "parts",
    [
        {"holder": "deque(maxlen=10)"},
        {"keep": "self.kept.append(scores.argmax(-1))"},
        {"keep": "self.kept.append(scores.detach().cpu())"},
        {"call": "self.stats.update(out.logits.cpu(), number)"},
        {"call": f"{UPDATE}; self.stats.reset()"},
        {"call": "stats = Stats(); stats.update(out.logits, number)"},
        {"keep": "pass", "more": CALLBACK.format(moved=".cpu()")},
    ],
)
def test_objects_that_keep_little(parts: dict[str, str], tmp_path: Path) -> None:
    assert count_handed(tmp_path, **parts) == 0


def test_an_object_of_another_file(tmp_path: Path) -> None:
    """The class stands in one file, and the step in another."""
    whole = HANDED.format(
        base="object", holder="[]", keep="self.kept.append(scores.detach())", call=UPDATE
    )
    head, _, tail = whole.partition("class Tuned")
    (tmp_path / "stats.py").write_text(head, encoding="utf-8")
    imports = "import lightning as L\nfrom transformers import AutoModelForCausalLM\n"
    (tmp_path / "tuned.py").write_text(
        f"{imports}from stats import Stats\n\nclass Tuned{tail}", encoding="utf-8"
    )
    (found,) = lint([str(tmp_path)], select=["outputs-kept-on-the-device"]).findings
    assert [Path(case.file or "").name for case in found.cases] == ["stats.py", "tuned.py"]
