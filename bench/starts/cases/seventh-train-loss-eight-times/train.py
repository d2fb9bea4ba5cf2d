"""SFT of Llama-3.2-3B on tutoring dialogues. Own Trainer class for label smoothing.

python train.py --train data/tutor.train.jsonl --val data/tutor.val.jsonl
"""
import argparse
import json

import torch
import torch.nn.functional as F
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments, set_seed

MODEL = "meta-llama/Llama-3.2-3B-Instruct"


def load(path, tokenizer, max_len):
    rows = []
    with open(path, encoding="utf-8") as f:
        for line in f:
            messages = json.loads(line)["messages"]
            prompt = tokenizer.apply_chat_template(messages[:-1], tokenize=False, add_generation_prompt=True)
            prompt_ids = tokenizer(prompt, add_special_tokens=False).input_ids
            answer_ids = tokenizer(messages[-1]["content"] + "<|eot_id|>", add_special_tokens=False).input_ids
            if len(prompt_ids) + len(answer_ids) <= max_len:
                rows.append({
                    "input_ids": prompt_ids + answer_ids,
                    "labels": [-100] * len(prompt_ids) + answer_ids,
                })
    return Dataset.from_list(rows)


class Collator:
    def __init__(self, pad_id):
        self.pad_id = pad_id

    def __call__(self, rows):
        n = max(len(r["input_ids"]) for r in rows)

        def pad(values, filler):
            return torch.tensor([v + [filler] * (n - len(v)) for v in values])

        ids = [r["input_ids"] for r in rows]
        return {
            "input_ids": pad(ids, self.pad_id),
            "labels": pad([r["labels"] for r in rows], -100),
            "attention_mask": pad([[1] * len(i) for i in ids], 0),
        }


class SmoothTrainer(Trainer):
    """Cross entropy with label smoothing on the answer tokens."""

    smoothing = 0.05

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        labels = inputs.pop("labels")
        outputs = model(**inputs)
        logits = outputs.logits[:, :-1].float()
        targets = labels[:, 1:]
        loss = F.cross_entropy(
            logits.reshape(-1, logits.size(-1)),
            targets.reshape(-1),
            ignore_index=-100,
            label_smoothing=self.smoothing if model.training else 0.0,
        )
        return (loss, outputs) if return_outputs else loss


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--train", default="data/tutor.train.jsonl")
    p.add_argument("--val", default="data/tutor.val.jsonl")
    p.add_argument("--out", default="out/tutor-3b")
    args = p.parse_args()
    set_seed(3)

    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    tokenizer.pad_token = "<|finetune_right_pad_id|>"
    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32)
    model.config.use_cache = False

    trainer = SmoothTrainer(
        model=model,
        args=TrainingArguments(
            output_dir=args.out,
            num_train_epochs=2,
            per_device_train_batch_size=4,
            per_device_eval_batch_size=4,
            gradient_accumulation_steps=8,
            gradient_checkpointing=True,
            learning_rate=1e-5,
            lr_scheduler_type="cosine",
            warmup_steps=15,
            weight_decay=0.01,
            max_grad_norm=1.0,
            bf16=True,
            logging_steps=5,
            eval_strategy="steps",
            eval_steps=40,
            save_steps=80,
            save_total_limit=1,
            report_to="none",
        ),
        train_dataset=load(args.train, tokenizer, 2048),
        eval_dataset=load(args.val, tokenizer, 2048),
        data_collator=Collator(tokenizer.pad_token_id),
        processing_class=tokenizer,
    )
    trainer.train()
    trainer.save_model()


if __name__ == "__main__":
    main()
