import argparse

import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoTokenizer
from trl import SFTConfig, SFTTrainer

parser = argparse.ArgumentParser()
parser.add_argument("--model", default="Qwen/Qwen2.5-7B-Instruct")
parser.add_argument("--data", required=True)
parser.add_argument("--output_dir", required=True)
parser.add_argument("--epochs", type=float, default=2)
args = parser.parse_args()

tokenizer = AutoTokenizer.from_pretrained(args.model)

ds = load_dataset("json", data_files=args.data, split="train")
# instruction / note / summary  ->  prompt + completion
ds = ds.map(
    lambda r: {
        "prompt": [{"role": "user", "content": f"{r['instruction']}\n\n{r['note']}"}],
        "completion": [{"role": "assistant", "content": r["summary"]}],
    },
    remove_columns=ds.column_names,
)
split = ds.train_test_split(test_size=0.02, seed=11)

peft_config = LoraConfig(
    r=32,
    lora_alpha=64,
    lora_dropout=0.05,
    target_modules="all-linear",
    task_type="CAUSAL_LM",
)

config = SFTConfig(
    output_dir=args.output_dir,
    num_train_epochs=args.epochs,
    per_device_train_batch_size=4,
    per_device_eval_batch_size=4,
    gradient_accumulation_steps=4,
    gradient_checkpointing=True,
    gradient_checkpointing_kwargs={"use_reentrant": False},
    learning_rate=1e-4,
    lr_scheduler_type="cosine",
    warmup_ratio=0.03,
    bf16=True,
    max_length=4096,
    logging_steps=10,
    eval_strategy="steps",
    eval_steps=200,
    save_strategy="steps",
    save_steps=200,
    save_total_limit=3,
    seed=11,
    report_to="none",
    model_init_kwargs={"torch_dtype": torch.bfloat16, "attn_implementation": "sdpa"},
)

trainer = SFTTrainer(
    model=args.model,
    args=config,
    train_dataset=split["train"],
    eval_dataset=split["test"],
    processing_class=tokenizer,
    peft_config=peft_config,
)
trainer.train()
trainer.save_model(args.output_dir)
