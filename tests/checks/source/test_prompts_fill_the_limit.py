"""Loops whose limit leaves rows without a label, so that a batch of them has a loss of nan."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from truetune.checks.check_paths import check_paths
from truetune.checks.lint import lint
from truetune.settings.run_spec import RunSpec

HEAD = """\
import json
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
NAME = "org/model"
LIMIT = 64
tok = AutoTokenizer.from_pretrained(NAME)
model = AutoModelForCausalLM.from_pretrained(NAME)
opt = torch.optim.AdamW(model.parameters(), lr=1e-5)
"""
DATASET = """\
class Rows(Dataset):
    def __init__(self, path):
        with open(path) as f:
            self.rows = [json.loads(line) for line in f]
    def __len__(self):
        return len(self.rows)
    def __getitem__(self, i):
        r = self.rows[i]
        p = tok(f"{r['clause']}\\n\\nQuestion: {r['question']}", add_special_tokens=False)["input_ids"]
        a = tok(r["answer"], add_special_tokens=False)["input_ids"]
        CUT
"""
TUPLE = "return torch.tensor((p + a)[:LIMIT]), torch.tensor(([-100] * len(p) + a)[:LIMIT])"
MASKED = """ids = (p + a)[:LIMIT]
        labels = ([-100] * len(p) + a)[:LIMIT]
        return torch.tensor(ids), torch.tensor([1] * len(ids)), torch.tensor(labels)"""
NAMED = 'return {"input_ids": (p + a)[:LIMIT], "labels": ([-100] * len(p) + a)[:LIMIT]}'
EXTENDED = """ids = list(p)
        labels = [-100] * len(p)
        ids.extend(a)
        labels.extend(a)
        return torch.tensor(ids[:LIMIT]), torch.tensor(labels[:LIMIT])"""
KEPT = """p = p[:LIMIT - len(a)]
        return torch.tensor(p + a), torch.tensor([-100] * len(p) + a)"""
LOOP = """\
for ids, labels in DataLoader(Rows("rows.jsonl"), batch_size=1, shuffle=True):
    loss = model(input_ids=ids, labels=labels).loss
    loss.backward()
    opt.step()
    opt.zero_grad()
"""
OF_THREE = LOOP.replace("ids, labels in", "ids, mask, labels in")
OF_NAMES = LOOP.replace("ids, labels in", "batch in").replace(
    "input_ids=ids, labels=labels", "**batch"
)
GUARDED = LOOP.replace(
    "    loss.backward()", "    if not torch.isfinite(loss): continue\n    loss.backward()"
)
SKIPPED = LOOP.replace("    loss = ", "    if (labels != -100).sum() == 0: continue\n    loss = ")
SUMMED = LOOP.replace(
    "model(input_ids=ids, labels=labels).loss",
    'F.cross_entropy(model(ids).logits[0], labels[0], reduction="sum") / 64',
)
OF_FOUR = LOOP.replace("batch_size=1", "batch_size=4")
DEFAULT = LOOP.replace("batch_size=1, ", "")


def script(cut: str, loop: str) -> str:
    return HEAD + DATASET.replace("CUT", cut) + loop


def lay_out(folder: Path, text: str, long: int = 3, words: int = 120) -> Path:
    """A script beside 40 rows, some of which have that many words in their prompt."""
    rows = [
        {
            "clause": "supplier delivers the samples "
            * (words // 4 if n % 13 == 5 and long else 3),
            "question": f"How many days for {n}?",
            "answer": f"{n} days.",
        }
        for n in range(40)
    ]
    (folder / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n", encoding="utf-8")
    (folder / "go.py").write_text(text, encoding="utf-8")
    return folder / "go.py"


@pytest.mark.parametrize(
    ("cut", "loop", "found"),
    [
        (TUPLE, LOOP, 1),
        (TUPLE, DEFAULT, 1),
        (MASKED, OF_THREE, 1),
        (NAMED, OF_NAMES, 1),
        (EXTENDED, LOOP, 1),
        # The answer is kept, or such batches are left out, or summed.
        (KEPT, LOOP, 0),
        (TUPLE, GUARDED, 0),
        (TUPLE, SKIPPED, 0),
        (TUPLE, SUMMED, 0),
        # One row of 13 is without a label: no batch of four rows is of these alone.
        (NAMED, OF_NAMES.replace("batch_size=1", "batch_size=4"), 0),
    ],
)
def test_a_batch_without_a_label(cut: str, loop: str, found: int, tmp_path: Path) -> None:
    path = lay_out(tmp_path, script(cut, loop))
    findings = lint([path], select=["SRC421"]).findings
    assert len(findings) == found
    if found:
        assert "at least 3 of 40 rows have no label" in findings[0].message
        assert "so the loss is nan" in findings[0].message


PREPARED = """\
from accelerate import Accelerator
acc = Accelerator()
made = DataLoader(Rows("rows.jsonl"), batch_size=1), DataLoader(Rows("other.jsonl"), batch_size=8)
train, held_out = made
model, opt, train, held_out = acc.prepare(model, opt, train, held_out)
for batch in train:
    acc.backward(model(**batch).loss)
    opt.step()
"""
IMPORTED = """\
import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM
from rows import Rows
model = AutoModelForCausalLM.from_pretrained("org/model")
for batch in DataLoader(Rows("rows.jsonl"), batch_size=1):
    model(**batch).loss.backward()
"""


def test_a_loader_that_is_prepared_beside_another(tmp_path: Path) -> None:
    path = lay_out(tmp_path, script(NAMED, PREPARED))
    assert len(lint([path], select=["SRC421"]).findings) == 1


def test_a_data_set_of_another_file(tmp_path: Path) -> None:
    path = lay_out(tmp_path, IMPORTED)
    (tmp_path / "rows.py").write_text(script(NAMED, ""), encoding="utf-8")
    (finding,) = lint([tmp_path], select=["SRC421"]).findings
    assert Path(str(finding.cases[1].file)).name == path.name


def test_rows_within_the_limit_are_whole(tmp_path: Path) -> None:
    path = lay_out(tmp_path, script(TUPLE, LOOP), long=0)
    assert not lint([path], select=["SRC421"]).findings


def test_rows_of_more_than_a_thousand_tokens_are_followed(tmp_path: Path) -> None:
    """A list that is joined of two keeps all of its ids."""
    text = script(TUPLE, LOOP).replace("LIMIT = 64", "LIMIT = 1500")
    path = lay_out(tmp_path, text, words=2400)
    (finding,) = lint([path], select=["SRC421"]).findings
    assert "the 1,500 tokens that the script keeps" in finding.message


LINE = "[{0:4d}/120] epoch 0 loss {1} grad_norm {2} lr 1e-06\n"


def test_the_loss_of_the_log_is_told_by_the_rows(tmp_path: Path) -> None:
    lay_out(tmp_path, script(TUPLE, LOOP))
    steps = "".join(LINE.format(n, 2.0 - n / 50, 8.3 - n / 5) for n in range(1, 4))
    steps += "".join(LINE.format(n, "nan", "nan") for n in range(4, 60))
    (tmp_path / "run.log").write_text(steps, encoding="utf-8")
    report = check_paths([str(tmp_path)], RunSpec())
    found = {one.rule: one for one in report.findings}
    # The norm of a loss that is nan did not grow.
    assert "grad-norm-explodes" not in found
    rules = [one.rule for one in report.findings]
    assert rules.index("prompts-fill-the-limit") < rules.index("loss-not-finite")
    assert "see prompts-fill-the-limit" in found["loss-not-finite"].remedy
    assert "lower the learning rate or" not in found["loss-not-finite"].remedy


LIGHTNING_DATA = """\
import json
import lightning as L
import torch
from torch.utils.data import DataLoader

class Clauses(L.LightningDataModule):
    def __init__(self, path, tok, limit=64):
        super().__init__()
        self.path, self.tok, self.limit = path, tok, limit
    def encode(self, r):
        p = self.tok(r["clause"], add_special_tokens=False).input_ids
        a = self.tok(r["answer"], add_special_tokens=False).input_ids
        PROMPT
        ids = (p + a)[: self.limit]
        mask = ([0] * len(p) + [1] * len(a))[: self.limit]
        return torch.tensor(ids), torch.tensor(mask)
    def setup(self, stage=None):
        with open(self.path) as f:
            self.rows = [self.encode(json.loads(line)) for line in f]
    def collate(self, rows):
        ids = torch.nn.utils.rnn.pad_sequence([r[0] for r in rows], batch_first=True)
        mask = torch.nn.utils.rnn.pad_sequence([r[1] for r in rows], batch_first=True)
        attention = (torch.arange(ids.shape[1])[None] < 9).long()
        return {"input_ids": ids, "attention_mask": attention, "loss_mask": mask}
    def train_dataloader(self):
        return DataLoader(self.rows, batch_size=SIZE, shuffle=True, collate_fn=self.collate)
"""
LIGHTNING_MODEL = """\
import lightning as L
import torch
import torch.nn.functional as F
from transformers import AutoModelForCausalLM

class Tuned(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = AutoModelForCausalLM.from_pretrained("org/model")
    def training_step(self, batch, _):
        logits = self.model(batch["input_ids"]).logits[:, :-1]
        weight = batch["loss_mask"][:, 1:].float()
        each = F.cross_entropy(logits.transpose(1, 2), batch["input_ids"][:, 1:], reduction="none")
        LOSS
    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-5)
"""
LIGHTNING_GO = """\
import lightning as L
from transformers import AutoTokenizer
from clauses import Clauses
from tuned import Tuned
tok = AutoTokenizer.from_pretrained("org/model")
L.Trainer(max_epochs=2).fit(Tuned(), GIVEN)
"""
DIVIDED = "return (each * weight).sum() / weight.sum()"
NAMED_DIVISOR = "count = weight.sum()\n        return torch.sum(each * weight) / count"


@pytest.mark.parametrize(
    ("loss", "prompt", "size", "given", "found"),
    [
        (DIVIDED, "", 1, 'datamodule=Clauses("rows.jsonl", tok)', 1),
        (NAMED_DIVISOR, "", 1, 'datamodule=Clauses("rows.jsonl", tok, limit=48)', 1),
        (DIVIDED, "", 1, 'Clauses("rows.jsonl", tok)', 1),
        # A divisor that is never zero, a prompt that is cut, a greater limit, batches of several rows.
        (DIVIDED + ".clamp(min=1)", "", 1, 'datamodule=Clauses("rows.jsonl", tok)', 0),
        ("return (each * weight).mean()", "", 1, 'datamodule=Clauses("rows.jsonl", tok)', 0),
        (DIVIDED, "p = p[: self.limit - len(a)]", 1, 'datamodule=Clauses("rows.jsonl", tok)', 0),
        (DIVIDED, "", 1, 'datamodule=Clauses("rows.jsonl", tok, limit=900)', 0),
        (DIVIDED, "", 8, 'datamodule=Clauses("rows.jsonl", tok)', 0),
    ],
)
def test_a_mask_that_is_zero_is_found_in_data_modules(
    loss: str, prompt: str, size: int, given: str, found: int, tmp_path: Path
) -> None:
    data = LIGHTNING_DATA.replace("SIZE", str(size)).replace("PROMPT", prompt or "pass")
    (tmp_path / "clauses.py").write_text(data, encoding="utf-8")
    (tmp_path / "tuned.py").write_text(LIGHTNING_MODEL.replace("LOSS", loss), encoding="utf-8")
    lay_out(tmp_path, LIGHTNING_GO.replace("GIVEN", given))
    paths = [tmp_path / name for name in ("clauses.py", "go.py", "tuned.py")]
    findings = lint(paths, select=["prompts-fill-the-limit"]).findings
    assert len(findings) == found
    assert all("clamp(min=1)" in one.remedy for one in findings)


LOOP_WITH_MASK = """\
for ids, mask in DataLoader(Rows("rows.jsonl"), batch_size=1, shuffle=True):
    each = F.cross_entropy(model(ids).logits[:, :-1].transpose(1, 2), ids[:, 1:], reduction="none")
    weight = mask[:, 1:]
    loss = (each * weight).sum() / DIVISOR
    loss.backward()
    opt.step()
    opt.zero_grad()
"""
MASK_OF_ANSWER = (
    "return torch.tensor((p + a)[:LIMIT]), torch.tensor(([0] * len(p) + [1] * len(a))[:LIMIT])"
)


@pytest.mark.parametrize(
    ("divisor", "found"),
    [
        ("weight.sum()", 1),
        ("(weight.sum() + 1e-8)", 0),
        ("max(weight.sum(), 1)", 0),
        ("weight.numel()", 0),
    ],
)
def test_a_loop_that_divides_by_its_mask(divisor: str, found: int, tmp_path: Path) -> None:
    text = script(MASK_OF_ANSWER, LOOP_WITH_MASK.replace("DIVISOR", divisor))
    path = lay_out(tmp_path, text)
    assert len(lint([path], select=["prompts-fill-the-limit"]).findings) == found
