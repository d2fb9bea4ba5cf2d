import os
import torch
import transformers
from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from transformers import (AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq, Trainer,
                          TrainingArguments)

transformers.utils.logging.set_verbosity_info()
transformers.utils.logging.enable_explicit_format()

BASE = os.environ.get("BASE", "mistralai/Mistral-7B-Instruct-v0.3")
DATA = os.environ.get("DATA", "clinic_v2.jsonl")      # v1: clinic_v1.jsonl
OUT = "outputs/clinic-lora"

tok = AutoTokenizer.from_pretrained(BASE)
tok.pad_token = tok.unk_token

model = AutoModelForCausalLM.from_pretrained(BASE, torch_dtype=torch.bfloat16, device_map={"": 0})
model.config.use_cache = False
model.enable_input_require_grads()
model = get_peft_model(model, LoraConfig(
    r=16, lora_alpha=32, lora_dropout=0.05, bias="none", task_type="CAUSAL_LM",
    target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
))
model.print_trainable_parameters()


def encode(row):
    prompt = tok.apply_chat_template([{"role": "user", "content": row["question"]}],
                                     add_generation_prompt=True, tokenize=False)
    p = tok(prompt, add_special_tokens=False)["input_ids"]
    a = tok(" " + row["answer"], add_special_tokens=False)["input_ids"] + [tok.eos_token_id]
    ids = (p + a)[:1024]
    labels = ([-100] * len(p) + a)[:1024]
    return {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": labels}


ds = load_dataset("json", data_files=DATA, split="train")
ds = ds.map(encode, remove_columns=ds.column_names)

args = TrainingArguments(
    output_dir=OUT,
    num_train_epochs=3,
    per_device_train_batch_size=2,
    gradient_accumulation_steps=4,
    learning_rate=2e-4,
    warmup_steps=5,
    lr_scheduler_type="cosine",
    logging_steps=4,
    save_strategy="epoch",
    save_total_limit=2,
    bf16=True,
    gradient_checkpointing=True,
    report_to="none",
)
trainer = Trainer(
    model=model,
    args=args,
    train_dataset=ds,
    data_collator=DataCollatorForSeq2Seq(tok, padding=True, label_pad_token_id=-100),
    processing_class=tok,
)

# cluster kills jobs after 2h, so continue where we were
last = transformers.trainer_utils.get_last_checkpoint(OUT) if os.path.isdir(OUT) else None
trainer.train(resume_from_checkpoint=last)
trainer.save_model(OUT)
tok.save_pretrained(OUT)
