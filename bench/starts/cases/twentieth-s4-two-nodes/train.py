from datasets import load_dataset
from trl import SFTConfig, SFTTrainer

dataset = load_dataset("parquet", data_files="/data/support/train-*.parquet", split="train")
args = SFTConfig(
    output_dir="/runs/llama31-8b-support",
    model_init_kwargs={"torch_dtype": "bfloat16", "attn_implementation": "flash_attention_2"},
    per_device_train_batch_size=2,
    gradient_accumulation_steps=1,
    max_length=4096,
    packing=True,
    learning_rate=1e-5,
    lr_scheduler_type="cosine",
    warmup_ratio=0.03,
    num_train_epochs=2,
    bf16=True,
    logging_steps=5,
    save_steps=400,
    report_to="none",
)
trainer = SFTTrainer(model="meta-llama/Llama-3.1-8B-Instruct", args=args, train_dataset=dataset)
trainer.train()
trainer.save_model()
