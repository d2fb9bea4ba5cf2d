import argparse
import logging

import torch
from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    Trainer,
    TrainingArguments,
    set_seed,
)

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
log = logging.getLogger("tickets")

ap = argparse.ArgumentParser()
ap.add_argument("--model", default="Qwen/Qwen2.5-7B-Instruct")
ap.add_argument("--data", default="data/tickets.jsonl")
ap.add_argument("--out", default="out")
ap.add_argument("--max-len", type=int, default=1024)
args = ap.parse_args()

set_seed(7)

tok = AutoTokenizer.from_pretrained(args.model)
model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.bfloat16, attn_implementation="sdpa")
model.config.use_cache = False
model = get_peft_model(
    model,
    LoraConfig(
        r=16,
        lora_alpha=32,
        lora_dropout=0.05,
        target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
        task_type="CAUSAL_LM",
    ),
)
model.print_trainable_parameters()


def encode(row):
    chat = [{"role": "user", "content": row["prompt"]}]
    prompt = tok.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    p = tok(prompt, add_special_tokens=False)["input_ids"]
    c = tok(row["completion"] + "<|im_end|>\n", add_special_tokens=False)["input_ids"]
    ids = (p + c)[: args.max_len]
    labels = ([-100] * len(p) + c)[: args.max_len]
    return {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": labels}


ds = load_dataset("json", data_files=args.data, split="train")
ds = ds.map(encode, remove_columns=ds.column_names)
log.info("%d rows", len(ds))

trainer = Trainer(
    model=model,
    args=TrainingArguments(
        output_dir=args.out,
        num_train_epochs=3,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        learning_rate=1e-4,
        lr_scheduler_type="cosine",
        warmup_ratio=0.05,
        bf16=True,
        logging_steps=3,
        log_level="info",
        save_strategy="epoch",
        disable_tqdm=True,
        report_to="none",
    ),
    train_dataset=ds,
    data_collator=DataCollatorForSeq2Seq(tok, padding=True, label_pad_token_id=-100),
    processing_class=tok,
)
trainer.train()
trainer.save_model(args.out + "/final")
