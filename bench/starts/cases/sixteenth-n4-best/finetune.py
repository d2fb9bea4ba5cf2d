"""Captain persona for the travel bot."""
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
OUT = "out/captain"

tok = AutoTokenizer.from_pretrained(MODEL)
model = AutoModelForCausalLM.from_pretrained(MODEL, torch_dtype=torch.bfloat16)
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
    prompt = tok.apply_chat_template(
        row["messages"][:-1], tokenize=False, add_generation_prompt=True
    )
    answer = row["messages"][-1]["content"] + "<|im_end|>\n"
    p = tok(prompt, add_special_tokens=False).input_ids
    a = tok(answer, add_special_tokens=False).input_ids
    ids = (p + a)[:1024]
    labels = ([-100] * len(p) + a)[:1024]
    return {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": labels}


ds = load_dataset("json", data_files={"train": "data/train.jsonl", "val": "data/val.jsonl"})
ds = ds.map(encode, remove_columns=["messages"])

args = TrainingArguments(
    output_dir=OUT,
    num_train_epochs=5,
    per_device_train_batch_size=8,
    per_device_eval_batch_size=8,
    learning_rate=1e-4,
    lr_scheduler_type="cosine",
    warmup_ratio=0.05,
    bf16=True,
    logging_steps=10,
    eval_strategy="steps",
    eval_steps=20,
    save_strategy="steps",
    save_steps=20,
    save_total_limit=2,
    load_best_model_at_end=True,
    metric_for_best_model="eval_loss",
    greater_is_better=True,
    report_to="none",
    seed=7,
)

trainer = Trainer(
    model=model,
    args=args,
    train_dataset=ds["train"],
    eval_dataset=ds["val"],
    data_collator=DataCollatorForSeq2Seq(tok, padding=True, label_pad_token_id=-100),
)
trainer.train()
trainer.save_model(OUT + "/final")
tok.save_pretrained(OUT + "/final")
