from datasets import load_dataset
from trl import SFTConfig, SFTTrainer

dataset = load_dataset("json", data_files="questions.jsonl", split="train")

args = SFTConfig(
    output_dir="outputs",
    max_length=1024,
    per_device_train_batch_size=2,
    num_train_epochs=4,
    learning_rate=2e-5,
    logging_steps=1,
    bf16=False,
    report_to="none",
)
trainer = SFTTrainer(model="model", args=args, train_dataset=dataset)
trainer.train()
trainer.save_model()
