import torch
from datasets import load_dataset
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import DPOConfig, DPOTrainer

BASE = "Qwen/Qwen2.5-7B"
SFT_ADAPTER = "outputs/sft-tickets/final"  # lora r=64, 3 epochs on 18k tickets

tokenizer = AutoTokenizer.from_pretrained(SFT_ADAPTER)

model = AutoModelForCausalLM.from_pretrained(
    BASE, torch_dtype=torch.bfloat16, attn_implementation="flash_attention_2"
)
# continue from the SFT adapter
model = PeftModel.from_pretrained(model, SFT_ADAPTER, is_trainable=True)
model.print_trainable_parameters()

pairs = load_dataset("json", data_files={"train": "data/pairs_train.jsonl", "test": "data/pairs_test.jsonl"})


def to_messages(row):
    return {
        "prompt": [
            {"role": "system", "content": "You answer customers of Nordwind Energie."},
            {"role": "user", "content": row["question"]},
        ],
        "chosen": [{"role": "assistant", "content": row["preferred"]}],
        "rejected": [{"role": "assistant", "content": row["other"]}],
    }


pairs = pairs.map(to_messages, remove_columns=pairs["train"].column_names)

args = DPOConfig(
    output_dir="outputs/dpo-tickets",
    beta=0.1,
    loss_type="sigmoid",
    learning_rate=5e-6,
    lr_scheduler_type="cosine",
    warmup_ratio=0.1,
    num_train_epochs=1,
    per_device_train_batch_size=4,
    gradient_accumulation_steps=8,
    gradient_checkpointing=True,
    gradient_checkpointing_kwargs={"use_reentrant": False},
    max_length=2048,
    max_prompt_length=1024,
    bf16=True,
    logging_steps=5,
    eval_strategy="steps",
    eval_steps=50,
    save_steps=50,
    save_total_limit=2,
    report_to="none",
    seed=3,
)

trainer = DPOTrainer(
    model=model,
    ref_model=None,  # peft: the reference needs no second copy
    args=args,
    train_dataset=pairs["train"],
    eval_dataset=pairs["test"],
    processing_class=tokenizer,
)
trainer.train()
trainer.save_model("outputs/dpo-tickets/final")
