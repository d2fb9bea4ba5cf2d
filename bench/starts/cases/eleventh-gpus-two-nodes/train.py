"""Full fine-tune of Qwen2.5-14B on the internal instruction mix (messages parquet)."""
from datasets import load_dataset
from transformers import AutoTokenizer
from trl import SFTConfig, SFTTrainer

MODEL = "Qwen/Qwen2.5-14B-Instruct"
DATA = "/lustre/proj/nlp/data/instr_mix_v5"

tokenizer = AutoTokenizer.from_pretrained(MODEL)

train = load_dataset("parquet", data_files=f"{DATA}/train-*.parquet", split="train")
val = load_dataset("parquet", data_files=f"{DATA}/val.parquet", split="train")

cfg = SFTConfig(
    output_dir="/lustre/proj/nlp/runs/qwen14b-mix5",
    deepspeed="ds_zero3.json",
    max_length=4096,
    packing=True,
    num_train_epochs=2,
    per_device_train_batch_size=2,
    gradient_accumulation_steps=4,
    per_device_eval_batch_size=2,
    gradient_checkpointing=True,
    gradient_checkpointing_kwargs={"use_reentrant": False},
    learning_rate=1e-5,
    lr_scheduler_type="cosine",
    warmup_ratio=0.03,
    bf16=True,
    model_init_kwargs={"dtype": "bfloat16", "attn_implementation": "flash_attention_2"},
    logging_steps=1,
    eval_strategy="steps",
    eval_steps=200,
    save_steps=200,
    save_total_limit=2,
    dataloader_num_workers=8,
    ddp_timeout=7200,
    report_to="none",
    seed=13,
)

trainer = SFTTrainer(
    model=MODEL,
    args=cfg,
    train_dataset=train,
    eval_dataset=val,
    processing_class=tokenizer,
)
trainer.train()
trainer.save_model()
