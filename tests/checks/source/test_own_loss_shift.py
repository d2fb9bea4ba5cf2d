"""Which losses of a causal model compare logits with labels of their own place, and which do not."""

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
    AutoModelForTokenClassification,
    AutoTokenizer,
    DataCollatorForLanguageModeling,
    DataCollatorForSeq2Seq,
    Trainer,
    TrainingArguments,
)
from peft import LoraConfig, get_peft_model
tok = AutoTokenizer.from_pretrained("Qwen/Qwen2.5-0.5B")
"""
UNSHIFTED = {
    "collator that pads columns": """
def nll(logits, ids, mask):
    picked = F.log_softmax(logits, dim=-1).gather(2, ids.unsqueeze(2)).squeeze(2)
    return -(picked * mask).sum() / mask.sum()
def make(tok):
    def collate(rows):
        return tok.pad({"input_ids": rows}, return_tensors="pt")
    return collate
class Rows(Dataset):
    def __init__(self, path):
        self.rows = [tok(line)["input_ids"] for line in open(path)]
    def __len__(self):
        return len(self.rows)
    def __getitem__(self, i):
        return self.rows[i]
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B")
for batch in DataLoader(Rows("a.txt"), batch_size=8, shuffle=True, collate_fn=make(tok)):
    out = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"])
    nll(out.logits, batch["input_ids"], batch["attention_mask"]).backward()
""",
    "method of a trainer": """
class T(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, **kw):
        labels = inputs.pop("labels")
        out = model(**inputs)
        loss = nn.CrossEntropyLoss()(out.logits.view(-1, out.logits.size(-1)), labels.view(-1))
        return (loss, out) if return_outputs else loss
def enc(r):
    e = tok(r["text"], truncation=True)
    e["labels"] = e["input_ids"].copy()
    return e
ds = load_dataset("x", split="train").map(enc)
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B")
T(model=model, args=TrainingArguments("o"), train_dataset=ds, data_collator=DataCollatorForSeq2Seq(tok)).train()
""",
    "function given to a trainer": """
def loss_fn(outputs, labels, num_items_in_batch=None):
    l = outputs.logits.float()
    return F.cross_entropy(l.flatten(0, 1), labels.flatten(), reduction="sum") / num_items_in_batch
def enc(b):
    return tok(b["text"])
ds = load_dataset("x", split="train").map(enc, batched=True)
model = get_peft_model(AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B"), LoraConfig())
collator = DataCollatorForLanguageModeling(tok, mlm=False)
Trainer(model, TrainingArguments("o"), collator, ds, compute_loss_func=loss_fn).train()
""",
    "step of Lightning": """
import lightning as L
class M(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.lm = AutoModelForCausalLM.from_pretrained("gpt2")
        self.ce = nn.CrossEntropyLoss(ignore_index=-100)
    def training_step(self, batch, i):
        ids = batch["input_ids"]
        target = ids.clone()
        target[batch["attention_mask"] == 0] = -100
        logits = self.lm(ids, attention_mask=batch["attention_mask"]).logits
        loss = self.ce(logits.transpose(1, 2), target)
        self.log("l", loss)
        return loss
L.Trainer().fit(M(), DataLoader(load_dataset("x"), batch_size=2))
""",
    "log-probabilities for DPO": """
def logps(logits, labels):
    mask = labels != -100
    labels = labels.clone()
    labels[labels == -100] = 0
    p = torch.gather(logits.log_softmax(-1), dim=2, index=labels.unsqueeze(2)).squeeze(2)
    return (p * mask).sum(-1)
def collate(rows):
    ids, labels = [], []
    for r in rows:
        p = tok(r["prompt"])["input_ids"]
        a = tok(r["chosen"], add_special_tokens=False)["input_ids"]
        ids.append(torch.tensor(p + a))
        labels.append(torch.tensor([-100] * len(p) + a))
    pad = nn.utils.rnn.pad_sequence
    return {
        "chosen_ids": pad(ids, batch_first=True),
        "chosen_labels": pad(labels, batch_first=True, padding_value=-100),
    }
policy = AutoModelForCausalLM.from_pretrained("gpt2")
loader = DataLoader(load_dataset("x", split="train"), batch_size=4, collate_fn=collate)
for b in loader:
    b = {k: v.cuda() for k, v in b.items()}
    lp = logps(policy(b["chosen_ids"]).logits, b["chosen_labels"])
    (-F.logsigmoid(lp)).mean().backward()
""",
    "rows of a data set": """
class D(Dataset):
    def __init__(self, rows): self.rows = rows
    def __len__(self): return len(self.rows)
    def __getitem__(self, i):
        p = tok(self.rows[i]["q"])["input_ids"]
        full = p + tok(self.rows[i]["a"])["input_ids"] + [tok.eos_token_id]
        labels = list(full)
        labels[:len(p)] = [-100] * len(p)
        return {"input_ids": torch.tensor(full), "labels": torch.tensor(labels)}
def run(model, dl):
    for batch in dl:
        x, y = batch["input_ids"].cuda(), batch["labels"].cuda()
        z = model(input_ids=x)["logits"]
        loss = F.cross_entropy(z.view(-1, z.shape[-1]), y.view(-1), ignore_index=-100)
        loss.backward()
run(AutoModelForCausalLM.from_pretrained("gpt2").cuda(), DataLoader(D([]), batch_size=1))
""",
    "beside the model's own loss": """
model = AutoModelForCausalLM.from_pretrained("gpt2")
for batch in loader:
    out = model(input_ids=batch["input_ids"], labels=batch["labels"])
    extra = F.cross_entropy(out.logits.view(-1, 50257), batch["labels"].view(-1), weight=w)
    (out.loss + extra).backward()
""",
    "labels made by TRL": """
from trl import SFTTrainer, SFTConfig
class Focal(SFTTrainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        outputs = model(**inputs)
        logits, labels = outputs.logits, inputs["labels"]
        logp = F.log_softmax(logits, dim=-1)
        nll = F.nll_loss(logp.view(-1, logp.size(-1)), labels.view(-1), ignore_index=-100, reduction="none")
        return nll.mean()
Focal(model="Qwen/Qwen2.5-0.5B", args=SFTConfig("o"), train_dataset=load_dataset("x", split="train")).train()
""",
    "answers after their prompt": """
model = AutoModelForCausalLM.from_pretrained("gpt2")
def score(q, a):
    p = tok(q, return_tensors="pt").input_ids
    ids = torch.cat([p, tok(a, return_tensors="pt").input_ids], dim=-1)
    n = p.shape[-1]
    lp = model(ids).logits.log_softmax(-1)
    return lp[:, n:].gather(2, ids[:, n:, None]).sum()
print(score("a", "b"))
""",
}

RIGHT_OR_NOT_KNOWN = {
    "shifted in the trainer": """
class T(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, **kw):
        labels = inputs["labels"]
        out = model(**inputs)
        shift_logits = out.logits[..., :-1, :].contiguous()
        shift_labels = labels[..., 1:].contiguous()
        return nn.CrossEntropyLoss()(shift_logits.view(-1, shift_logits.size(-1)), shift_labels.view(-1))
def enc(r):
    e = tok(r["text"], truncation=True)
    e["labels"] = e["input_ids"].copy()
    return e
ds = load_dataset("x", split="train").map(enc)
T(AutoModelForCausalLM.from_pretrained("gpt2"), TrainingArguments("o"), train_dataset=ds).train()
""",
    "tensors one token apart": """
ids = []
for r in load_dataset("x", split="train"):
    ids += tok(r["t"])["input_ids"]
n = 100
x = torch.tensor(ids[: n * 512]).view(n, 512)
y = torch.tensor(ids[1 : n * 512 + 1]).view(n, 512)
model = AutoModelForCausalLM.from_pretrained("gpt2")
for a, b in DataLoader(TensorDataset(x, y)):
    F.cross_entropy(model(a).logits.flatten(0, 1), b.flatten()).backward()
""",
    "ids of which some are masked": """
model = AutoModelForCausalLM.from_pretrained("diff")
for batch in loader:
    ids = batch["input_ids"]
    m = torch.rand(ids.shape) < 0.3
    noisy = torch.where(m, tok.mask_token_id, ids)
    out = model(noisy).logits
    F.cross_entropy(out[m], ids[m]).backward()
""",
    "rows of another script": """
class T(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, **kw):
        labels = inputs.pop("labels")
        out = model(**inputs)
        return F.cross_entropy(out.logits.view(-1, 9), labels.view(-1))
from datasets import load_from_disk
T(AutoModelForCausalLM.from_pretrained("gpt2"), TrainingArguments("o"), train_dataset=load_from_disk("rows")).train()
""",
    "shifted in the collator": """
def collate(rows):
    e = tok([r["t"] for r in rows], padding=True, return_tensors="pt")["input_ids"]
    return {"x": e[:, :-1], "y": e[:, 1:].contiguous()}
model = AutoModelForCausalLM.from_pretrained("gpt2")
for b in DataLoader(load_dataset("x", split="train"), collate_fn=collate):
    F.cross_entropy(model(b["x"]).logits.view(-1, 9), b["y"].view(-1)).backward()
""",
    "answers one place before": """
model = AutoModelForCausalLM.from_pretrained("gpt2")
p = tok("q", return_tensors="pt").input_ids
a = tok("a", return_tensors="pt").input_ids
ids = torch.cat([p, a], dim=1)
logits = model(ids).logits
n = p.shape[1]
logp = logits[:, n - 1 : -1].log_softmax(-1)
s = logp.gather(-1, a.unsqueeze(-1)).sum()
s2 = logits[:, n - 1 : -1].log_softmax(-1).gather(-1, ids[:, n:].unsqueeze(-1)).sum()
""",
    "classifier of tokens": """
model = AutoModelForTokenClassification.from_pretrained("bert")
for b in loader:
    F.cross_entropy(model(b["input_ids"]).logits.view(-1, 9), b["input_ids"].view(-1)).backward()
""",
    "padded, rolled and written": """
model = AutoModelForCausalLM.from_pretrained("gpt2")
for b in loader:
    ids = b["input_ids"]
    logits = model(ids).logits
    labels = F.pad(ids, (0, 1), value=-100)[..., 1:]
    F.cross_entropy(logits.view(-1, 9), labels.reshape(-1)).backward()
    labels = torch.roll(ids, -1, dims=1)
    labels[:, -1] = -100
    F.cross_entropy(logits.view(-1, 9), labels.reshape(-1)).backward()
    t = torch.full_like(ids, -100)
    t[:, :-1] = ids[:, 1:]
    F.cross_entropy(logits.view(-1, 9), t.reshape(-1)).backward()
""",
}


def count_findings(text: str) -> int:
    rule = find_rule("own-loss-without-shift")
    return len(run_rule(parse_module(text, "train.py"), rule).findings)


@pytest.mark.parametrize("text", UNSHIFTED.values(), ids=UNSHIFTED)
def test_losses_without_a_shift_are_found(text: str) -> None:
    assert count_findings(HEAD + text) == 1


@pytest.mark.parametrize("text", RIGHT_OR_NOT_KNOWN.values(), ids=RIGHT_OR_NOT_KNOWN)
def test_other_losses_are_left_alone(text: str) -> None:
    assert count_findings(HEAD + text) == 0


ANSWERS = """
policy = AutoModelForCausalLM.from_pretrained("gpt2")
def picked(logits, ids):
    return torch.gather(F.log_softmax(logits, dim=-1), 2, ids.unsqueeze(-1)).squeeze(-1)
for batch in loader:
    prompts = batch["input_ids"]
    ids = policy.generate(prompts, max_new_tokens=64)
    answers = ids[:, prompts.shape[1] :]
    width = answers.shape[1]
    logits = policy({ids}).logits
    loss = -picked({logits}, {labels}).mean()
    loss.backward()
"""
ANSWER_SLICES = [
    # ids of the pass, logits, labels, whether both are of the same place
    ("ids", "logits[:, -width:, :].float()", "ids[:, -width:]", True),
    ("ids", "logits[:, -width:]", "answers", True),
    ("ids", "logits[:, -answers.size(1) :] / 0.7", "answers.long()", True),
    ("ids", "logits[:, prompts.shape[1] :]", "answers", True),
    ("ids", "logits[:, -32:]", "ids[:, -32:]", True),
    ("ids", "logits[:, -width:-1]", "ids[:, -width:-1]", True),
    ("ids", "logits[:, :-1][:, -width:]", "ids[:, :-1][:, -width:]", True),
    ("ids, logits_to_keep=width", "logits[:, -width:]", "ids[:, -width:]", True),
    (
        "torch.cat([prompts, batch['answers']], 1)",
        "logits[:, -batch['answers'].shape[1] :]",
        "answers",
        False,
    ),
    ("ids", "logits[:, -width - 1 : -1, :].float()", "ids[:, -width:]", False),
    ("ids", "logits[:, -(width + 1) : -1]", "answers", False),
    ("ids", "logits[:, :-1][:, -width:]", "ids[:, -width:]", False),
    ("ids", "logits[:, :-1, :][:, -width:]", "ids[:, 1:][:, -width:]", False),
    ("ids, logits_to_keep=width + 1", "logits[:, :-1]", "answers", False),
    ("ids, logits_to_keep=width + 1", "logits[:, :-1][:, -width:]", "answers", False),
    ("ids", "logits[:, prompts.shape[1] - 1 : -1]", "answers", False),
    ("ids", "logits[:, -width:]", "ids[:, -other:]", False),
    ("torch.cat([ids, more], 1)", "logits[:, -width:]", "ids[:, -width:]", False),
    ("ids[:, :-1]", "logits[:, -width:]", "ids[:, -width:]", False),
    ("ids[:, :-1]", "logits[:, -width:]", "answers", False),
]


@pytest.mark.parametrize(("ids", "logits", "labels", "is_same"), ANSWER_SLICES)
def test_slices_that_count_from_the_end(ids: str, logits: str, labels: str, is_same: bool) -> None:
    """Log-probabilities of sampled answers: both sides are compared by their distance from the row's end."""
    text = HEAD + ANSWERS.replace("{ids}", ids).replace("{logits}", logits).replace(
        "{labels}", labels
    )
    assert count_findings(text) == int(is_same)
