from datasets import load_dataset
from trl import SFTConfig, SFTTrainer

trainer = SFTTrainer(
    "path/to/model",
    SFTConfig("out", max_steps=4, per_device_train_batch_size=4, logging_steps=1, save_strategy="no",
              report_to="none", bf16=False),
    train_dataset=load_dataset("json", data_files="chats.jsonl", split="train"),
)  # fmt: skip
trainer.train()
