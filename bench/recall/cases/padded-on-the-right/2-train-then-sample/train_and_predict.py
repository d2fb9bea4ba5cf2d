import json

import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, set_seed
from trl import SFTConfig, SFTTrainer

MODEL = "Qwen/Qwen2.5-1.5B-Instruct"
OUT = "out/ticket-summaries"

set_seed(17)

tokenizer = AutoTokenizer.from_pretrained(MODEL)
tokenizer.padding_side = "right"

model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.bfloat16, device_map={"": 0})


def to_chat(row):
    return {
        "prompt": [{"role": "user", "content": "Summarise this support ticket:\n\n" + row["ticket"]}],
        "completion": [{"role": "assistant", "content": row["summary"]}],
    }


ds = load_dataset(
    "json",
    data_files={"train": "data/train.jsonl", "validation": "data/valid.jsonl", "test": "data/test.jsonl"},
)
train = ds["train"].map(to_chat, remove_columns=ds["train"].column_names)
valid = ds["validation"].map(to_chat, remove_columns=ds["validation"].column_names)

trainer = SFTTrainer(
    model=model,
    processing_class=tokenizer,
    train_dataset=train,
    eval_dataset=valid,
    peft_config=LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM"),
    args=SFTConfig(
        output_dir=OUT,
        num_train_epochs=2,
        per_device_train_batch_size=8,
        gradient_accumulation_steps=2,
        learning_rate=2e-4,
        lr_scheduler_type="cosine",
        warmup_steps=50,
        max_length=2048,
        bf16=True,
        gradient_checkpointing=False,
        eval_strategy="steps",
        eval_steps=100,
        save_steps=100,
        logging_steps=10,
        seed=17,
    ),
)
trainer.train()
trainer.save_model(OUT)
tokenizer.save_pretrained(OUT)

# predictions for the held-out tickets
model = trainer.model
model.eval()
test_rows = list(ds["test"])
results = []
for start in range(0, len(test_rows), 8):
    batch = test_rows[start : start + 8]
    texts = [
        tokenizer.apply_chat_template(to_chat(r)["prompt"], tokenize=False, add_generation_prompt=True) for r in batch
    ]
    inputs = tokenizer(texts, padding=True, add_special_tokens=False, return_tensors="pt").to(model.device)
    with torch.no_grad():
        out = model.generate(**inputs, max_new_tokens=200, do_sample=False, temperature=None, top_p=None, top_k=None)
    new = out[:, inputs.input_ids.shape[1] :]
    for r, text in zip(batch, tokenizer.batch_decode(new, skip_special_tokens=True)):
        results.append({"ticket": r["ticket"], "reference": r["summary"], "prediction": text.strip()})

with open(f"{OUT}/test_predictions.json", "w") as f:
    json.dump(results, f, indent=2)
