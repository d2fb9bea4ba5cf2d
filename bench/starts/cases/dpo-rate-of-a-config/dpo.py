from datasets import load_dataset
from trl import DPOConfig, DPOTrainer

pairs = load_dataset("json", data_files="pairs.jsonl", split="train")
arguments = DPOConfig("out", learning_rate=5e-9, beta=0.1, num_train_epochs=1)
DPOTrainer("Qwen/Qwen3-0.6B", args=arguments, train_dataset=pairs).train()
