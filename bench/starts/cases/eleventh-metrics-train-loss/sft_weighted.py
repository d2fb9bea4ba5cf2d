"""SFT of Mistral Nemo on the tool-call traces; tokens inside the JSON of a call count double."""
import torch
import torch.nn.functional as F
from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments

BASE = "mistralai/Mistral-Nemo-Instruct-2407"
CALL_WEIGHT = 2.0
MAX_LEN = 4096

tokenizer = AutoTokenizer.from_pretrained(BASE)
if tokenizer.pad_token is None:
    tokenizer.pad_token = "<pad>"


def build(row):
    """trace = list of [kind, text]; kinds: user, answer, call"""
    ids, labels, weights = [tokenizer.bos_token_id], [-100], [0.0]
    for kind, text in row["trace"]:
        if kind == "user":
            piece = tokenizer(f"[INST]{text}[/INST]", add_special_tokens=False)["input_ids"]
            ids += piece
            labels += [-100] * len(piece)
            weights += [0.0] * len(piece)
        else:
            piece = tokenizer(text, add_special_tokens=False)["input_ids"] + [tokenizer.eos_token_id]
            ids += piece
            labels += piece
            weights += [CALL_WEIGHT if kind == "call" else 1.0] * len(piece)
    return {"input_ids": ids[:MAX_LEN], "labels": labels[:MAX_LEN], "weights": weights[:MAX_LEN]}


def collate(rows):
    width = max(len(r["input_ids"]) for r in rows)

    def pad(key, value):
        return [r[key] + [value] * (width - len(r[key])) for r in rows]

    return {
        "input_ids": torch.tensor(pad("input_ids", tokenizer.pad_token_id)),
        "attention_mask": torch.tensor([[1] * len(r["input_ids"]) + [0] * (width - len(r["input_ids"])) for r in rows]),
        "labels": torch.tensor(pad("labels", -100)),
        "weights": torch.tensor(pad("weights", 0.0)),
    }


class WeightedTrainer(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        weights = inputs.pop("weights")
        labels = inputs.pop("labels")
        outputs = model(**inputs)
        logits = outputs.logits[:, :-1].float()
        target = labels[:, 1:]
        w = weights[:, 1:]
        nll = F.cross_entropy(
            logits.reshape(-1, logits.size(-1)), target.reshape(-1), ignore_index=-100, reduction="none"
        ).view_as(target)
        loss = (nll * w).sum() / w.sum().clamp(min=1.0)
        return (loss, outputs) if return_outputs else loss


data = load_dataset("json", data_files={"train": "traces_train.jsonl", "val": "traces_val.jsonl"})
data = data.map(build, remove_columns=data["train"].column_names, num_proc=8)

model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.bfloat16, attn_implementation="sdpa")
model.config.use_cache = False
model.enable_input_require_grads()
model = get_peft_model(
    model,
    LoraConfig(r=32, lora_alpha=64, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM"),
)
model.print_trainable_parameters()

args = TrainingArguments(
    output_dir="runs/nemo-calls",
    num_train_epochs=2,
    per_device_train_batch_size=2,
    per_device_eval_batch_size=2,
    gradient_accumulation_steps=16,
    gradient_checkpointing=True,
    gradient_checkpointing_kwargs={"use_reentrant": False},
    learning_rate=1e-4,
    lr_scheduler_type="cosine",
    warmup_ratio=0.05,
    bf16=True,
    logging_steps=5,
    eval_strategy="steps",
    eval_steps=50,
    save_steps=100,
    save_total_limit=2,
    remove_unused_columns=False,
    prediction_loss_only=True,
    report_to="none",
    seed=11,
)

trainer = WeightedTrainer(
    model=model,
    args=args,
    train_dataset=data["train"],
    eval_dataset=data["val"],
    data_collator=collate,
    processing_class=tokenizer,
)
trainer.train()
trainer.save_model("runs/nemo-calls/final")
