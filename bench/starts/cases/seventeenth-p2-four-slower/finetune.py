# SFT of the FAQ bot, plain HF Trainer
import torch
from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    Trainer,
    TrainingArguments,
)

MODEL = "Qwen/Qwen2.5-1.5B-Instruct"
MAX_LEN = 1024

tokenizer = AutoTokenizer.from_pretrained(MODEL)
model = AutoModelForCausalLM.from_pretrained(MODEL, torch_dtype=torch.bfloat16, attn_implementation="sdpa")
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
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": row["question"]}], tokenize=False, add_generation_prompt=True
    )
    p = tokenizer(prompt, add_special_tokens=False)["input_ids"]
    a = tokenizer(row["answer"] + "<|im_end|>\n", add_special_tokens=False)["input_ids"]
    return {
        "input_ids": p + a,
        "attention_mask": [1] * (len(p) + len(a)),
        "labels": [-100] * len(p) + a,
    }


raw = load_dataset("json", data_files="data/faq.jsonl", split="train")
ds = raw.map(encode, remove_columns=raw.column_names, num_proc=8)
ds = ds.filter(lambda r: len(r["input_ids"]) <= MAX_LEN)
split = ds.train_test_split(test_size=0.02, seed=11)

args = TrainingArguments(
    output_dir="out/faq-lora",
    per_device_train_batch_size=4,
    per_device_eval_batch_size=4,
    gradient_accumulation_steps=4,
    num_train_epochs=2,
    learning_rate=1e-4,
    lr_scheduler_type="cosine",
    warmup_ratio=0.03,
    bf16=True,
    logging_steps=10,
    eval_strategy="epoch",
    save_strategy="epoch",
    dataloader_num_workers=4,
    log_level="info",
    report_to="none",
    seed=11,
)

trainer = Trainer(
    model=model,
    args=args,
    train_dataset=split["train"],
    eval_dataset=split["test"],
    data_collator=DataCollatorForSeq2Seq(tokenizer, padding=True, label_pad_token_id=-100),
    processing_class=tokenizer,
)
trainer.train()
trainer.save_model("out/faq-lora/final")
