# full fine-tune of Llama 3.1 8B on our ticket summaries
import os

import torch
from datasets import load_dataset
from transformers import (AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq, Trainer, TrainerCallback,
                          TrainingArguments)

MODEL = "meta-llama/Llama-3.1-8B"
tok = AutoTokenizer.from_pretrained(MODEL)
tok.pad_token = "<|finetune_right_pad_id|>"

model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32, attn_implementation="flash_attention_2", use_cache=False)


def encode(row):
    prompt = tok(f"Ticket:\n{row['ticket']}\n\nSummary:\n").input_ids
    answer = tok(row["summary"], add_special_tokens=False).input_ids + [tok.eos_token_id]
    ids = (prompt + answer)[:1024]
    labels = ([-100] * len(prompt) + answer)[:1024]
    return {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": labels}


ds = load_dataset("acme-support/ticket-summaries", split="train")
ds = ds.map(encode, remove_columns=ds.column_names, num_proc=8)
ds = ds.filter(lambda r: any(l != -100 for l in r["labels"]))


class Mem(TrainerCallback):
    def on_step_begin(self, args, state, control, **kw):
        if state.is_world_process_zero:
            a = torch.cuda.memory_allocated() / 2**30
            p = torch.cuda.max_memory_allocated() / 2**30
            print(f"[mem] step {state.global_step} allocated {a:.2f} GiB peak {p:.2f} GiB", flush=True)


args = TrainingArguments(
    output_dir="runs/llama31-8b-full",
    num_train_epochs=2,
    per_device_train_batch_size=1,
    gradient_accumulation_steps=8,
    learning_rate=1e-5,
    lr_scheduler_type="cosine",
    warmup_ratio=0.05,
    bf16=True,
    logging_steps=5,
    save_strategy="epoch",
    report_to="none",
)
trainer = Trainer(model=model, args=args, train_dataset=ds, processing_class=tok,
                  data_collator=DataCollatorForSeq2Seq(tok, label_pad_token_id=-100), callbacks=[Mem()])
trainer.train()
if os.environ.get("RANK", "0") == "0":
    print(trainer.model)
trainer.save_model()
