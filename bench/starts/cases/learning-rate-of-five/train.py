from datasets import load_dataset
from trl import SFTConfig, SFTTrainer

rows = load_dataset("json", data_files="chats.jsonl", split="train")
arguments = SFTConfig(
    "out", learning_rate=5.0, max_length=1024, assistant_only_loss=True, num_train_epochs=2
)
SFTTrainer("Qwen/Qwen3-0.6B", train_dataset=rows, args=arguments).train()
