"""Teach a small model to sort the messages of hotel guests. Prints accuracy per label on the held-out part."""
from collections import Counter

import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

BASE = "Qwen/Qwen2.5-1.5B-Instruct"
LABELS = ("praise", "question", "complaint")


def label_of(row):
    return row["completion"][0]["content"]


@torch.inference_mode()
def accuracy(model, tokenizer, rows):
    """Greedy answers, one row at a time; compared with the label after strip and lower."""
    model.eval()
    right, total = Counter(), Counter()
    for row in rows:
        inputs = tokenizer.apply_chat_template(
            row["prompt"], add_generation_prompt=True, return_tensors="pt", return_dict=True
        ).to(model.device)
        out = model.generate(**inputs, max_new_tokens=6, do_sample=False)
        answer = tokenizer.decode(out[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True).strip().lower()
        gold = label_of(row)
        total[gold] += 1
        right[gold] += answer == gold
    for name in LABELS:
        print(f"{name:10s} {right[name]:4d} of {total[name]:4d}")
    print(f"accuracy   {sum(right.values()) / max(1, sum(total.values())):.3f}")


def main():
    tokenizer = AutoTokenizer.from_pretrained(BASE)
    model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.bfloat16, device_map={"": 0})

    data = load_dataset("json", data_files="data/guests.jsonl", split="train")
    parts = data.train_test_split(test_size=0.2, shuffle=False)
    train, test = parts["train"], parts["test"]
    print(len(train), "rows to train on,", len(test), "held out")

    args = SFTConfig(
        output_dir="runs/guests",
        num_train_epochs=3,
        per_device_train_batch_size=8,
        gradient_accumulation_steps=2,
        learning_rate=1e-4,
        warmup_ratio=0.05,
        lr_scheduler_type="cosine",
        bf16=True,
        max_length=512,
        logging_steps=5,
        eval_strategy="epoch",
        save_strategy="no",
        report_to="none",
    )
    trainer = SFTTrainer(
        model=model,
        args=args,
        train_dataset=train,
        eval_dataset=test,
        processing_class=tokenizer,
        peft_config=LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"),
    )
    trainer.train()
    accuracy(trainer.model, tokenizer, test)
    trainer.save_model("runs/guests/final")


if __name__ == "__main__":
    main()
