"""Real scripts, each with one fault that `lint` fixes, and what it must show before and after.

`MODEL` is the folder of a tiny model with its tokenizer; a script leaves what it shows in `shown`.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Script(NamedTuple):
    """A script that runs."""

    rule: str
    safe: bool
    before: Any
    """`shown` as it is; an exception's name where it stops"""
    after: Any
    text: str


PAD = """
# -*- coding: utf-8 -*-
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForLanguageModeling  # those "three"

tok = AutoTokenizer.from_pretrained(MODEL)
if True:
    tok.pad_token = tok.eos_token   # käse
model = AutoModelForCausalLM.from_pretrained(MODEL)
collator = DataCollatorForLanguageModeling(tok, mlm=False)
batch = collator([tok("a b c</s>"), tok("a</s>")])
loss = model(**batch).loss
shown = bool((batch["labels"] == tok.eos_token_id).any()), bool(loss > 0)
"""
OVERWRITTEN = """
import transformers
from datasets import Dataset

tok = transformers.AutoTokenizer.from_pretrained(MODEL)
tok.pad_token = "<pad>"


def encode(row):
    prompt, answer = tok(row["p"])["input_ids"], tok(row["a"])["input_ids"]
    return {"input_ids": prompt + answer, "labels": [-100] * len(prompt) + answer}


rows = Dataset.from_list([{"p": "a b", "a": "c"}, {"p": "a", "a": "b c"}]).map(encode, remove_columns=["p", "a"])
collator = transformers.DataCollatorForLanguageModeling(
    tok,  # the tokenizer
    mlm=False,
)
labels = collator([{**row} for row in rows])["labels"]
shown = bool((labels[0, :3] == -100).all())
"""
TWICE = """
from transformers import AutoTokenizer as AT

t = AT.from_pretrained(MODEL)
tokenizer = t
kw = dict(tokenize=False)
kw["add_generation_prompt"] = True


def encode(row):
    text = tokenizer.apply_chat_template(row["messages"], **kw)
    ids = tokenizer(
        text,
        return_tensors="pt"  # tensors
    )["input_ids"][0].tolist()
    return {"input_ids": ids, "labels": ids}


row = encode({"messages": [{"role": "user", "content": "a b"}]})
shown = row["input_ids"][:2] == [tokenizer.bos_token_id] * 2
"""
DICTIONARY = """
from transformers import AutoTokenizer

tok = AutoTokenizer.from_pretrained(MODEL)
chat = [{"role": "user", "content": "a b c d"}]
prompt = tok.apply_chat_template(chat, add_generation_prompt=True)
shown = len(prompt) > 2
"""
TRAINER = """
import torch.nn.functional as F
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments


class MyTrainer(Trainer):
    \"\"\"Computes the loss itself.\"\"\"

    def compute_loss(PARAMETERS):
        outputs = model(**inputs)
        loss = F.cross_entropy(outputs.logits[:, :-1].flatten(0, 1), inputs["labels"][:, 1:].flatten())
        return (loss, outputs) if return_outputs else loss


def norm(batch, steps):
    args = TrainingArguments(
        OUT, per_device_train_batch_size=batch, gradient_accumulation_steps=steps, max_steps=1, logging_steps=1,
        report_to=[], use_cpu=True, seed=0, max_grad_norm=1e9, save_strategy="no", disable_tqdm=True,
    )
    rows = [{"input_ids": [5, 6, 7, 8], "labels": [5, 6, 7, 8]}] * 4
    trainer = MyTrainer(model=AutoModelForCausalLM.from_pretrained(MODEL), args=args, train_dataset=rows)
    trainer.train()
    return trainer.state.log_history[0]["grad_norm"]


shown = round(norm(1, 4) / norm(4, 1), 2)
"""
COLUMNS = """
from datasets import Dataset
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

seen = []


class Weighted(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        seen.append(inputs.pop("weight", None) is not None)
        outputs = model(**inputs, num_items_in_batch=num_items_in_batch)
        return (outputs.loss, outputs) if return_outputs else outputs.loss


model = AutoModelForCausalLM.from_pretrained(MODEL)
args = TrainingArguments(OUT, max_steps=1, report_to=[], use_cpu=True, save_strategy="no", disable_tqdm=True)
rows = Dataset.from_list([{"input_ids": [5, 6], "labels": [5, 6], "weight": 0.5}] * 2)
Weighted(model=model, args=args, train_dataset=rows).train()
shown = seen[0]
"""
FROZEN = """
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM

get_peft_model(AutoModelForCausalLM.from_pretrained(MODEL), LoraConfig(target_modules=["q_proj"])).save_pretrained(OUT)
model = AutoModelForCausalLM.from_pretrained(MODEL)
model = PeftModel.from_pretrained(model, OUT)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
shown = sum(p.requires_grad for p in model.parameters())
"""
JOINED = """
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

targets = [
    "q_proj",
    "k_proj"
    'v_proj'  # the value
]
config = LoraConfig(target_modules=targets)
model = get_peft_model(AutoModelForCausalLM.from_pretrained(MODEL), config)
shown = sum("lora_A" in name for name, _ in model.named_parameters())
"""
STATE = """
from peft import LoraConfig, get_peft_model, get_peft_model_state_dict
from safetensors import safe_open
from transformers import AutoModelForCausalLM

CONFIG = LoraConfig(target_modules=["q_proj"], modules_to_save=["lm_head"])
model = get_peft_model(AutoModelForCausalLM.from_pretrained(MODEL), CONFIG)
old_state_dict = model.state_dict
# as it was done
model.state_dict = (
    lambda self, *_, **__: get_peft_model_state_dict(self, old_state_dict())
).__get__(model, type(model))
model.save_pretrained(OUT)
with safe_open(f"{OUT}/adapter_model.safetensors", "np") as file:
    shown = len(list(file.keys()))
"""
COPIED = """
from datasets import Dataset
from transformers import AutoTokenizer

tok = AutoTokenizer.from_pretrained(MODEL)
tok.pad_token = tok.eos_token


def encode(rows):
    batch = tok(rows["text"], padding="max_length", max_length=6)
    batch["labels"] = batch["input_ids"].copy()
    return batch


data = Dataset.from_list([{"text": "a b</s>"}, {"text": "a"}]).map(encode, batched=True)
shown = [row.count(tok.eos_token_id) for row in data["labels"]]
"""
TENSORS = """
from transformers import AutoTokenizer

tok = AutoTokenizer.from_pretrained(MODEL)
tok.pad_token = "<pad>"
inputs = tok(["a b c", "a"], padding=True, return_tensors="pt")
inputs["labels"] = inputs.input_ids.clone()
shown = int((inputs["labels"] == tok.pad_token_id).sum())
"""
PROCESSES = """
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader
from transformers import get_scheduler

accelerator = Accelerator(cpu=True)
optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
loader, optimizer = accelerator.prepare(DataLoader([1, 2, 3, 4]), optimizer)
epochs = 3
steps = epochs * len(loader)
scheduler = get_scheduler("linear", optimizer, num_warmup_steps=0, num_training_steps=steps)
scheduler = accelerator.prepare(scheduler)
shown = scheduler.get_last_lr()
"""
ACCUMULATED = """
import torch
from torch.utils.data import DataLoader
from transformers import get_linear_schedule_with_warmup

loader = DataLoader(range(8))
every = 4
optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
scheduler = get_linear_schedule_with_warmup(optimizer, 0, len(loader))
for i, batch in enumerate(loader):
    if (i + 1) % every == 0:
        optimizer.step()
        scheduler.step()
shown = scheduler.get_last_lr()[0]
"""
UNCLEARED = """
import torch
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained(MODEL)
opt = torch.optim.SGD(model.parameters(), lr=0.0)
norms = []
for _ in range(2):
    ids = torch.tensor([[1, 6, 7, 8]])
    model(input_ids=ids, labels=ids).loss.backward()
    norms.append(model.lm_head.weight.grad.norm().item())
    opt.step()  # no rate: the same gradients again
shown = round(norms[1] / norms[0])
"""
LABELS_PADDED = """
import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoTokenizer

tok = AutoTokenizer.from_pretrained(MODEL)
tok.pad_token = "<pad>"
labels = [torch.tensor([6, 7]), torch.tensor([6])]
labels = pad_sequence(labels, batch_first=True, padding_value=tok.pad_token_id)  # to the right
shown = labels[1, 1].item()
"""
UNMASKED = """
from transformers import AutoModelForCausalLM, AutoTokenizer

tok = AutoTokenizer.from_pretrained(MODEL, padding_side="left")
tok.pad_token = "<pad>"
model = AutoModelForCausalLM.from_pretrained(MODEL)
seen, forward = [], model.forward


def watched(*args, **kwargs):
    mask = kwargs.get("attention_mask")
    seen.append(None if mask is None else int(mask[1, 0]))
    return forward(*args, **kwargs)


model.forward = watched
enc = tok(["a b c", "a"], return_tensors="pt", padding=True)
model.generate(enc["input_ids"], max_new_tokens=1, pad_token_id=None)
shown = seen[0] == 0
"""
DROPPED = """
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

model = get_peft_model(AutoModelForCausalLM.from_pretrained(MODEL), LoraConfig(target_modules=["q_proj"]))
model.merge_and_unload()  # into the base
shown = type(model).__name__
"""
SCRIPTS = (
    Script("pad-equals-eos-lm-collator", False, (False, True), (True, True), PAD),
    Script("lm-collator-overwrites-labels", False, False, True, OVERWRITTEN),
    Script("rendered-text-tokenized-again", True, True, False, TWICE),
    Script("apply-chat-template-returns-dict", True, False, True, DICTIONARY),
    Script(
        "custom-loss-breaks-gradient-accumulation",
        True,
        4.0,
        1.0,
        TRAINER.replace("PARAMETERS", "self, model, inputs, return_outputs=False, **kwargs"),
    ),
    Script(
        "custom-loss-breaks-gradient-accumulation",
        True,
        "TypeError",
        1.0,
        TRAINER.replace("PARAMETERS", "self, model, inputs, return_outputs=False"),
    ),
    Script("remove-unused-columns-drops-input", False, False, True, COLUMNS),
    Script("adapter-loaded-frozen", True, 0, 4, FROZEN),
    Script("lora-target-names-joined", True, 2, 6, JOINED),
    Script("state-dict-method-replaced", True, "KeyError", 5, STATE),
    Script("labels-copy-input-ids", True, [3, 4], [1, 0], COPIED),
    Script("labels-copy-input-ids", True, 2, 0, TENSORS),
    Script("prepared-schedule-length-divided-by-processes", True, [1.0], [1.0], PROCESSES),
    Script("scheduler-length-miscounted", False, 0.75, 0.0, ACCUMULATED),
    Script("gradients-never-cleared", True, 2, 1, UNCLEARED),
    Script("labels-padded-with-pad-token", True, 3, -100, LABELS_PADDED),
    Script("generation-without-attention-mask", True, False, True, UNMASKED),
    Script("merge-result-dropped", True, "PeftModel", "LlamaForCausalLM", DROPPED),
)
