import math

import torch
from datasets import load_dataset
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    Trainer,
    TrainingArguments,
)

base = "mistralai/Mistral-7B-Instruct-v0.3"
tok = AutoTokenizer.from_pretrained(base)
tok.pad_token = tok.unk_token
model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.bfloat16)
model.config.use_cache = False


def encode(ex):
    prompt = tok.apply_chat_template(
        [{"role": "user", "content": ex["question"]}], tokenize=False, add_generation_prompt=True
    )
    p = tok(prompt, add_special_tokens=False)["input_ids"]
    a = tok(ex["answer"], add_special_tokens=False)["input_ids"] + [tok.eos_token_id]
    return {
        "input_ids": p + a,
        "attention_mask": [1] * (len(p) + len(a)),
        "labels": [-100] * len(p) + a,
    }


raw = load_dataset("json", data_files={"train": "train.jsonl", "val": "val.jsonl"})
data = raw.map(encode, remove_columns=raw["train"].column_names)


class PPLTrainer(Trainer):
    def evaluate(self, eval_dataset=None, ignore_keys=None, metric_key_prefix="eval"):
        metrics = super().evaluate(eval_dataset, ignore_keys, metric_key_prefix)
        ppl = {f"{metric_key_prefix}_perplexity": math.exp(metrics[f"{metric_key_prefix}_loss"])}
        self.log(ppl)
        metrics.update(ppl)
        return metrics


args = TrainingArguments(
    output_dir="out",
    per_device_train_batch_size=2,
    per_device_eval_batch_size=4,
    gradient_accumulation_steps=4,
    num_train_epochs=3,
    learning_rate=5e-6,
    lr_scheduler_type="cosine",
    warmup_steps=5,
    bf16=True,
    gradient_checkpointing=True,
    logging_steps=5,
    eval_strategy="steps",
    eval_steps=10,
    save_strategy="steps",
    save_steps=10,
    save_total_limit=2,
    load_best_model_at_end=True,
    metric_for_best_model="perplexity",
    report_to="none",
)

trainer = PPLTrainer(
    model=model,
    args=args,
    train_dataset=data["train"],
    eval_dataset=data["val"],
    data_collator=DataCollatorForSeq2Seq(tok, padding=True, label_pad_token_id=-100),
    processing_class=tok,
)
trainer.train()
print("final:", trainer.evaluate())
trainer.save_model("out/best")
