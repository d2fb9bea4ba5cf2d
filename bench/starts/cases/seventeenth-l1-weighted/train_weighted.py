from dataclasses import dataclass

import torch
import torch.nn.functional as F
from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments

MODEL_ID = "Qwen/Qwen2.5-1.5B-Instruct"

tokenizer = AutoTokenizer.from_pretrained(MODEL_ID)
model = AutoModelForCausalLM.from_pretrained(MODEL_ID, torch_dtype=torch.bfloat16)
model.config.use_cache = False
model = get_peft_model(
    model,
    LoraConfig(r=16, lora_alpha=32, lora_dropout=0.0, target_modules="all-linear", task_type="CAUSAL_LM"),
)
model.print_trainable_parameters()


def tokenize(row):
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": row["prompt"]}], tokenize=False, add_generation_prompt=True
    )
    p = tokenizer(prompt, add_special_tokens=False)["input_ids"]
    c = tokenizer(row["completion"] + "<|im_end|>", add_special_tokens=False)["input_ids"]
    return {"input_ids": p + c, "labels": [-100] * len(p) + c, "weight": row["weight"]}


@dataclass
class WeightedCollator:
    pad_id: int

    def __call__(self, features):
        width = max(len(f["input_ids"]) for f in features)
        batch = {"input_ids": [], "attention_mask": [], "labels": []}
        for f in features:
            pad = width - len(f["input_ids"])
            batch["input_ids"].append(f["input_ids"] + [self.pad_id] * pad)
            batch["attention_mask"].append([1] * len(f["input_ids"]) + [0] * pad)
            batch["labels"].append(f["labels"] + [-100] * pad)
        out = {k: torch.tensor(v) for k, v in batch.items()}
        out["weight"] = torch.tensor([f["weight"] for f in features], dtype=torch.float32)
        return out


class WeightedTrainer(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        weight = inputs.pop("weight")
        labels = inputs.pop("labels")
        outputs = model(**inputs)
        logits = outputs.logits[:, :-1].float()
        target = labels[:, 1:]
        ce = F.cross_entropy(logits.transpose(1, 2), target, ignore_index=-100, reduction="none")
        mask = (target != -100).float()
        per_row = (ce * mask).sum(1) / mask.sum(1).clamp(min=1)
        loss = (per_row * weight).mean()
        return (loss, outputs) if return_outputs else loss


ds = load_dataset("json", data_files={"train": "data/train.jsonl", "val": "data/val.jsonl"})
ds = ds.map(tokenize, remove_columns=["prompt", "completion"])

args = TrainingArguments(
    output_dir="out-weighted",
    per_device_train_batch_size=1,
    per_device_eval_batch_size=4,
    gradient_accumulation_steps=16,
    num_train_epochs=8,
    learning_rate=1e-4,
    lr_scheduler_type="cosine",
    warmup_ratio=0.05,
    logging_steps=1,
    eval_strategy="steps",
    eval_steps=16,
    save_strategy="epoch",
    bf16=True,
    remove_unused_columns=False,
    prediction_loss_only=True,
    label_names=["labels"],
    report_to="none",
)

trainer = WeightedTrainer(
    model=model,
    args=args,
    train_dataset=ds["train"],
    eval_dataset=ds["val"],
    data_collator=WeightedCollator(tokenizer.pad_token_id),
)
trainer.train()
trainer.save_model()
