from datasets import Dataset
from transformers import AutoTokenizer
from trl import SFTConfig, SFTTrainer

rows = Dataset.from_list(
    [
        {
            "messages": [
                {"role": "user", "content": "Hi"},
                {"role": "assistant", "content": "Hello!"},
            ],
            "notes": "a",
        },
        {
            "messages": [
                {"role": "user", "content": "Bye"},
                {"role": "assistant", "content": "See you."},
            ],
            "notes": "b",
        },
    ]
)


def as_text(row):
    return f"### Notes: {row['notes']}"


trainer = SFTTrainer(
    model="Qwen/Qwen2.5-0.5B-Instruct",
    args=SFTConfig(output_dir="out", max_length=2048, bf16=True, learning_rate=1e-5),
    train_dataset=rows,
    formatting_func=as_text,
)
trainer.train()
