import json
import os
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from datasets import load_dataset
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    Trainer,
    TrainingArguments,
)

MODEL = "Qwen/Qwen3-1.7B-Base"
IM_END = "<|im_end|>"
JSON_WEIGHT = 1.5

tok = AutoTokenizer.from_pretrained(MODEL)


def build(ex):
    prompt = (
        f"<|im_start|>user\nExtract the fields from this invoice as JSON.\n\n{ex['ocr']}{IM_END}\n"
        "<|im_start|>assistant\n"
    )
    target = json.dumps(json.loads(ex["fields"]), ensure_ascii=False) + IM_END
    p = tok(prompt, add_special_tokens=False)["input_ids"]
    t = tok(target, add_special_tokens=False)["input_ids"]
    digits = [JSON_WEIGHT if any(c.isdigit() for c in tok.decode([i])) else 1.0 for i in t]
    return {
        "input_ids": p + t,
        "labels": [-100] * len(p) + t,
        "weights": [0.0] * len(p) + digits,
        "length": len(p) + len(t),
    }


@dataclass
class Collate:
    pad: int

    def __call__(self, feats):
        n = max(len(f["input_ids"]) for f in feats)

        def right(key, value):
            return [f[key] + [value] * (n - len(f[key])) for f in feats]

        mask = [[1] * len(f["input_ids"]) + [0] * (n - len(f["input_ids"])) for f in feats]
        return {
            "input_ids": torch.tensor(right("input_ids", self.pad)),
            "attention_mask": torch.tensor(mask),
            "labels": torch.tensor(right("labels", -100)),
            "weights": torch.tensor(right("weights", 0.0)),
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


def main():
    ds = load_dataset("json", data_files={"train": "invoices_train.jsonl", "eval": "invoices_eval.jsonl"})
    ds = ds.map(build, remove_columns=ds["train"].column_names, num_proc=4)
    ds = ds.filter(lambda e: e["length"] <= 4096).remove_columns("length")

    model = AutoModelForCausalLM.from_pretrained(MODEL, torch_dtype=torch.float32, attn_implementation="sdpa")
    model.config.use_cache = False

    args = TrainingArguments(
        output_dir="out/invoices",
        num_train_epochs=2,
        per_device_train_batch_size=2,
        per_device_eval_batch_size=2,
        gradient_accumulation_steps=16,
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        learning_rate=1e-5,
        lr_scheduler_type="cosine",
        warmup_ratio=0.05,
        max_grad_norm=1.0,
        bf16=True,
        logging_steps=5,
        eval_strategy="steps",
        eval_steps=25,
        save_strategy="steps",
        save_steps=50,
        save_total_limit=2,
        prediction_loss_only=True,
        remove_unused_columns=False,
        label_names=["labels"],
        seed=3,
        report_to="tensorboard",
    )
    trainer = WeightedTrainer(
        model=model,
        args=args,
        train_dataset=ds["train"],
        eval_dataset=ds["eval"],
        data_collator=Collate(tok.pad_token_id),
        processing_class=tok,
    )
    trainer.train()
    trainer.save_model(os.path.join(args.output_dir, "final"))


if __name__ == "__main__":
    main()
