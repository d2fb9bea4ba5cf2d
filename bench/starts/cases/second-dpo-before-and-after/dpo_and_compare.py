import json

import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import DPOConfig, DPOTrainer

BASE = "meta-llama/Llama-3.2-3B-Instruct"
OUT = "out/dpo-tone"

tokenizer = AutoTokenizer.from_pretrained(BASE)
tokenizer.pad_token = "<|finetune_right_pad_id|>"


def train():
    model = AutoModelForCausalLM.from_pretrained(
        BASE, torch_dtype=torch.bfloat16, device_map={"": 0}
    )
    pairs = load_dataset("json", data_files="pairs.jsonl", split="train")
    args = DPOConfig(
        output_dir=OUT,
        beta=0.1,
        learning_rate=5e-5,
        lr_scheduler_type="cosine",
        warmup_ratio=0.1,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=4,
        num_train_epochs=2,
        max_length=1536,
        bf16=True,
        gradient_checkpointing=True,
        logging_steps=5,
        save_strategy="no",
        report_to="none",
    )
    trainer = DPOTrainer(
        model=model,
        args=args,
        train_dataset=pairs,
        processing_class=tokenizer,
        peft_config=LoraConfig(
            r=32,
            lora_alpha=64,
            lora_dropout=0.05,
            target_modules="all-linear",
            task_type="CAUSAL_LM",
        ),
    )
    trainer.train()
    trainer.model.save_pretrained(OUT)
    tokenizer.save_pretrained(OUT)
    del trainer, model
    torch.cuda.empty_cache()


def answers(model):
    model.eval()
    texts = []
    for line in open("test_prompts.jsonl"):
        enc = tokenizer.apply_chat_template(
            json.loads(line)["messages"],
            add_generation_prompt=True,
            return_tensors="pt",
            return_dict=True,
        ).to(model.device)
        with torch.no_grad():
            out = model.generate(**enc, max_new_tokens=256, do_sample=False)
        texts.append(
            tokenizer.decode(out[0, enc["input_ids"].shape[1] :], skip_special_tokens=True)
        )
    return texts


def load(name):
    return AutoModelForCausalLM.from_pretrained(
        name, torch_dtype=torch.bfloat16, device_map={"": 0}
    )


before = answers(load(BASE))
train()
after = answers(load(BASE))
same = sum(a == b for a, b in zip(before, after))
print(f"{same} of {len(before)} answers are unchanged")
with open("compare.jsonl", "w") as f:
    for a, b in zip(before, after):
        f.write(json.dumps({"before": a, "after": b}) + "\n")
