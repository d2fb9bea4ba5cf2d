import torch
from datasets import load_dataset
from peft import PeftModel
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    Trainer,
    TrainingArguments,
)

BASE = "mistralai/Mistral-7B-Instruct-v0.3"
ROUND1 = "checkpoints/round1/checkpoint-800"

tok = AutoTokenizer.from_pretrained(BASE)
tok.pad_token = tok.unk_token
model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.bfloat16, attn_implementation="sdpa")
model.config.use_cache = False

# go on from the adapter of round 1
model = PeftModel.from_pretrained(model, ROUND1)
model.enable_input_require_grads()


def enc(ex):
    p = tok.apply_chat_template(
        [{"role": "user", "content": ex["q"]}], tokenize=True, return_dict=False
    )
    a = tok(ex["a"], add_special_tokens=False)["input_ids"] + [tok.eos_token_id]
    return {"input_ids": p + a, "attention_mask": [1] * len(p + a), "labels": [-100] * len(p) + a}


ds = load_dataset("csv", data_files="round2.csv", split="train")
ds = ds.map(enc, remove_columns=ds.column_names)

args = TrainingArguments(
    output_dir="checkpoints/round2",
    num_train_epochs=2,
    per_device_train_batch_size=4,
    gradient_accumulation_steps=4,
    gradient_checkpointing=True,
    learning_rate=1e-4,
    lr_scheduler_type="cosine",
    warmup_steps=3,
    logging_steps=1,
    save_steps=50,
    bf16=True,
    report_to="none",
)
Trainer(
    model,
    args,
    train_dataset=ds,
    data_collator=DataCollatorForSeq2Seq(tok, label_pad_token_id=-100),
).train()
