"""Which labels are shifted before a causal model shifts them, however they are written, and which are not."""

from __future__ import annotations

import pytest

from truetune.checks.rule_catalogue import find_rule
from truetune.checks.rule_runner import run_rule
from truetune.source.parsed_source_file import parse_module

HEAD = """
import torch
import torch.nn.functional as F
from torch import nn
from datasets import load_dataset
from torch.utils.data import DataLoader, Dataset, TensorDataset
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    Trainer,
    TrainingArguments,
)
from peft import LoraConfig, get_peft_model
tok = AutoTokenizer.from_pretrained("Qwen/Qwen2.5-0.5B")
"""
SHIFTED_TWICE = {
    "a function that makes rows": """
def shift(ids):
    return {"input_ids": ids[:-1], "labels": ids[1:]}
rows = [shift(tok(r["t"])["input_ids"]) for r in load_dataset("x", split="train")]
Trainer(model=AutoModelForCausalLM.from_pretrained("gpt2"), train_dataset=rows).train()
""",
    "a stream that packs": """
from torch.utils.data import IterableDataset
class Stream(IterableDataset):
    def __init__(self, n): self.n = n
    def __iter__(self):
        buf = []
        for r in load_dataset("x", split="train", streaming=True):
            buf.extend(tok(r["t"])["input_ids"])
            while len(buf) > self.n:
                chunk = torch.tensor(buf[: self.n + 1])
                buf = buf[self.n + 1 :]
                yield dict(input_ids=chunk[:-1], labels=chunk[1:].clone())
model = AutoModelForCausalLM.from_pretrained("gpt2").cuda()
for b in DataLoader(Stream(512), batch_size=2):
    out = model(input_ids=b["input_ids"].cuda(), labels=b["labels"].cuda())
    out["loss"].backward()
""",
    "a trainer": """
class T(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, **kw):
        ids = inputs["input_ids"]
        out = model(input_ids=ids[:, :-1], attention_mask=inputs["attention_mask"][:, :-1], labels=ids[:, 1:])
        return (out.loss, out) if return_outputs else out.loss
T(model=AutoModelForCausalLM.from_pretrained("gpt2"), train_dataset=load_dataset("x")).train()
""",
    "joined with a filler": """
model = get_peft_model(AutoModelForCausalLM.from_pretrained("gpt2"), LoraConfig())
for b in loader:
    ids = b["input_ids"]
    pad = torch.full((ids.size(0), 1), -100)
    y = torch.cat([ids[:, 1:], pad], dim=1)
    loss = model(ids, labels=y)[0]
    loss.backward()
""",
    "a mask one token short": """
def enc(r):
    p = tok(r["q"])["input_ids"]
    a = tok(r["a"])["input_ids"]
    return {"input_ids": p + a, "labels": [-100] * (len(p) - 1) + a + [-100]}
ds = load_dataset("x", split="train").map(enc)
model = AutoModelForCausalLM.from_pretrained("gpt2")
Trainer(model, TrainingArguments("o"), DataCollatorForSeq2Seq(tok), ds).train()
""",
}

RIGHT = {
    "own loss of shifted rows": """
class T(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, **kw):
        out = model(input_ids=inputs["input_ids"])
        return F.cross_entropy(out.logits.flatten(0, 1), inputs["labels"].flatten())
def enc(r):
    ids = tok(r["t"])["input_ids"]
    return {"input_ids": ids[:-1], "labels": ids[1:]}
T(model=AutoModelForCausalLM.from_pretrained("gpt2"), train_dataset=load_dataset("x").map(enc)).train()
""",
    "both cut at the front": """
model = AutoModelForCausalLM.from_pretrained("gpt2")
for b in loader:
    ids = b["input_ids"][:, 1:]
    labels = b["input_ids"][:, 1:].masked_fill(b["attention_mask"][:, 1:] == 0, -100)
    model(input_ids=ids, labels=labels).loss.backward()
""",
    "encoder-decoder": """
model = AutoModelForSeq2SeqLM.from_pretrained("t5-small")
for b in loader:
    y = b["y"]
    model(input_ids=b["x"], decoder_input_ids=y[:, :-1], labels=y[:, 1:]).loss.backward()
""",
    "answer behind a masked prompt": """
def enc(r):
    p = tok(r["q"])["input_ids"]
    full = p + tok(r["a"])["input_ids"] + [tok.eos_token_id]
    return {"input_ids": full, "labels": [-100] * len(p) + full[len(p):]}
ds = load_dataset("x", split="train").map(enc)
model = AutoModelForCausalLM.from_pretrained("gpt2")
Trainer(model, TrainingArguments("o"), DataCollatorForSeq2Seq(tok), ds).train()
""",
    "logits alone are read": """
model = AutoModelForCausalLM.from_pretrained("gpt2")
for b in loader:
    x, y = b["input_ids"][:, :-1], b["input_ids"][:, 1:]
    out = model(input_ids=x, labels=y)
    F.cross_entropy(out.logits.flatten(0, 1), y.flatten()).backward()
""",
}

PAIRS = """
class Pairs(Dataset):
    def __init__(self, texts):
        self.rows = [torch.tensor(tok(t)["input_ids"]) for t in texts]
    def __getitem__(self, i):
        ids = self.rows[i]
        return {row}
"""
LOOP = """
{collate}
model = AutoModelForCausalLM.from_pretrained("gpt2")
for x, y in DataLoader(Pairs(open("a.txt")), 8, collate_fn={collator}):
    model(input_ids=x.cuda(), labels=y.cuda()).loss.backward()
"""
LIGHTNING = """
import lightning as L
class Lm(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = AutoModelForCausalLM.from_pretrained("gpt2")
    {step}
{fit}
"""
STEP = """def training_step(self, batch, i):
        {taken}
        return self.model(input_ids=x, labels=y).loss
    {more}"""
PAD = "nn.utils.rnn.pad_sequence(xs, True), nn.utils.rnn.pad_sequence(ys, True, -100)"
COLLATORS = {
    "zip": f"def collate(batch):\n    xs, ys = zip(*batch)\n    return {PAD}",
    "map of zip": f"def collate(batch):\n    xs, ys = map(list, zip(*batch))\n    return {PAD}",
    "list of zip": f"def collate(batch):\n    xs, ys = list(zip(*batch))\n    return {PAD}",
    "stacked columns": "def collate(batch):\n    return [torch.stack(c) for c in zip(*batch)]",
    "places of rows": "def collate(batch):\n    xs, ys = [b[0] for b in batch], [b[1] for b in batch]\n"
    f"    return {PAD}",
    "parts of rows": f"def collate(batch):\n    xs, ys = [], []\n    for x, y in batch:\n"
    f"        xs.append(x)\n        ys.append(y)\n    return {PAD}",
    "a class": "class Collate:\n    def __call__(self, batch):\n        xs, ys = zip(*batch)\n"
    f"        return {PAD}\ncollate = Collate()",
    "a lambda": "collate = lambda batch: tuple(torch.stack(c) for c in zip(*batch))",
}
FITS = {
    "a loader": "L.Trainer().fit(Lm(), DataLoader(Pairs(open('a.txt')), 8))",
    "a loader by name": "L.Trainer().fit(Lm(), train_dataloaders=DataLoader(Pairs(open('a.txt'))))",
    "a data module": "class Data(L.LightningDataModule):\n    def setup(self, stage=None):\n"
    "        self.rows = Pairs(open('a.txt'))\n    def train_dataloader(self):\n"
    "        return DataLoader(self.rows, 8)\nL.Trainer().fit(Lm(), {given}Data())",
}


def loop_of(row: str, collator: str) -> str:
    """A loop whose collate function makes arrays of such rows."""
    return PAIRS.format(row=row) + LOOP.format(collate=COLLATORS[collator], collator="collate")


def lightning_of(row: str, fit: str, taken: str, more: str = "") -> str:
    """A Lightning module that is fitted to such rows."""
    step = STEP.format(taken=taken, more=more)
    return PAIRS.format(row=row) + LIGHTNING.format(step=step, fit=fit)


def count_findings(text: str) -> int:
    rule = find_rule("labels-shifted-by-hand")
    return len(run_rule(parse_module(text, "train.py"), rule).findings)


@pytest.mark.parametrize("text", SHIFTED_TWICE.values(), ids=SHIFTED_TWICE)
def test_labels_that_are_shifted_twice_are_found(text: str) -> None:
    assert count_findings(HEAD + text) == 1


@pytest.mark.parametrize("text", RIGHT.values(), ids=RIGHT)
def test_other_labels_are_left_alone(text: str) -> None:
    assert count_findings(HEAD + text) == 0


@pytest.mark.parametrize("collator", COLLATORS)
@pytest.mark.parametrize(("row", "faults"), [("ids[:-1], ids[1:]", 1), ("ids, ids.clone()", 0)])
def test_arrays_of_a_collate_function_are_followed(row: str, faults: int, collator: str) -> None:
    assert count_findings(HEAD + loop_of(row, collator)) == faults


TUPLES = ("ids[:-1], ids[1:]", "ids, ids.clone()", "x, y = batch")
MAPPINGS = (
    '{"x": ids[:-1], "y": ids[1:].clone()}',
    '{"x": ids, "y": ids.clone()}',
    'x, y = batch["x"], batch["y"]',
)


@pytest.mark.parametrize(("shifted", "right", "taken"), [TUPLES, MAPPINGS])
@pytest.mark.parametrize("given", ["", "datamodule="])
@pytest.mark.parametrize("fit", FITS)
def test_batches_of_lightning_are_followed(
    shifted: str, right: str, taken: str, given: str, fit: str
) -> None:
    code = FITS[fit].replace("{given}", given)
    assert count_findings(HEAD + lightning_of(shifted, code, taken)) == 1
    assert count_findings(HEAD + lightning_of(right, code, taken)) == 0


def test_a_module_of_lightning_that_makes_its_own_loader_is_followed() -> None:
    more = "def train_dataloader(self):\n        return DataLoader(Pairs(open('a.txt')), 8)"
    fit = "L.Trainer().fit(Lm())"
    shifted, right, taken = TUPLES
    assert count_findings(HEAD + lightning_of(shifted, fit, taken, more)) == 1
    assert count_findings(HEAD + lightning_of(right, fit, taken, more)) == 0


@pytest.mark.parametrize(
    "fit",
    [
        "L.Trainer().fit(Lm(), train, val)",
        "L.Trainer().fit(Lm(), train, val_dataloaders=val)",
        "L.Trainer().validate(Lm(), val)",
        "L.Trainer().validate(Lm(), dataloaders=val)",
    ],
)
def test_a_validation_step_has_the_batches_of_its_own_loader(fit: str) -> None:
    loaders = (
        "train = DataLoader([(i, i) for i in ids])\nval = DataLoader(Pairs(open('a.txt')), 8)\n"
    )
    step = "def validation_step(self, batch, i):\n        x, y = batch\n        return self.model(x, labels=y).loss"
    for row, faults in (("ids[:-1], ids[1:]", 1), ("ids, ids.clone()", 0)):
        code = PAIRS.format(row=row) + LIGHTNING.format(step=step, fit=loaders + fit)
        assert count_findings(HEAD + code) == faults


@pytest.mark.parametrize(
    ("model_call", "is_judged"),
    [
        ('model(input_ids=batch["x"], labels=batch["y"])', False),
        ('model(input_ids=batch["x"], labels=batch["x"])', True),
    ],
)
def test_labels_of_an_unknown_batch_are_not_judged(model_call: str, is_judged: bool) -> None:
    code = f"""
model = AutoModelForCausalLM.from_pretrained("gpt2")
for batch in loader:
    {model_call}.loss.backward()
"""
    rule = find_rule("labels-shifted-by-hand")
    result = run_rule(parse_module(HEAD + code, "train.py"), rule)
    assert not result.findings
    assert (not result.not_judged) == is_judged


ARRAYS = {
    "columns of a tensor data set": """
ids = torch.load("blocks.pt").view(-1, 128)
for x, y in DataLoader(TensorDataset(ids[:, :-1], {later}), 4):
    model(x.cuda(), labels=y.cuda()).loss.backward()
""",
    "one more dimension": """
for ids in torch.load("blocks.pt"):
    x, y = ids[:-1], {row}
    model(x[None], labels=y[None]).loss.backward()
""",
    "two lists over one range": """
def group(rows):
    ids = sum(rows["input_ids"], [])
    n = len(ids) // 128 * 128
    rows["labels"] = [ids[{begin} : {begin} + 128] for i in range(0, n, 128)]
    rows["input_ids"] = [ids[i : i + 128] for i in range(0, n, 128)]
    return rows
Trainer(model, TrainingArguments("o"), train_dataset=load_dataset("x").map(group, batched=True)).train()
""",
}


@pytest.mark.parametrize("arrays", ARRAYS)
def test_arrays_of_rows_are_compared(arrays: str) -> None:
    made = HEAD + 'model = AutoModelForCausalLM.from_pretrained("gpt2")\n' + ARRAYS[arrays]
    assert count_findings(made.format(later="ids[:, 1:]", row="ids[1:]", begin="i + 1")) == 1
    assert count_findings(made.format(later="ids[:, :-1]", row="ids[:-1]", begin="i")) == 0
