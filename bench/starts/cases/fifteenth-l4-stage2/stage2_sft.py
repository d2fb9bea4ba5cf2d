from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

STAGE1 = "/scratch/hydro/stage1/final"

tok = AutoTokenizer.from_pretrained(STAGE1)
tok.pad_token = "<|finetune_right_pad_id|>"
model = AutoModelForCausalLM.from_pretrained(STAGE1, torch_dtype="bfloat16", attn_implementation="sdpa")


def fmt(row):
    return {"prompt": f"Question: {row['q']}\nAnswer:", "completion": " " + row["a"]}


ds = load_dataset("json", data_files="/scratch/hydro/qa_12k.jsonl", split="train")
ds = ds.map(fmt, remove_columns=ds.column_names)

trainer = SFTTrainer(
    model=model,
    processing_class=tok,
    train_dataset=ds,
    args=SFTConfig(
        output_dir="/scratch/hydro/stage2",
        max_length=1024,
        per_device_train_batch_size=8,
        gradient_accumulation_steps=4,
        num_train_epochs=2,
        learning_rate=1e-4,
        lr_scheduler_type="cosine",
        warmup_ratio=0.03,
        bf16=True,
        logging_steps=10,
        save_strategy="epoch",
        report_to="none",
    ),
    peft_config=LoraConfig(r=32, lora_alpha=64, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM"),
)
trainer.train()
trainer.save_model("/scratch/hydro/stage2/final")
