from datasets import load_dataset
from transformers import AutoTokenizer
from trl import SFTConfig, SFTTrainer

NAME = "Qwen/Qwen2.5-0.5B"
tokenizer = AutoTokenizer.from_pretrained(NAME)


def encode(row):
    prompt = tokenizer(row["prompt"])["input_ids"]
    answer = tokenizer(row["completion"] + tokenizer.eos_token)["input_ids"]
    return {"input_ids": prompt + answer, "completion_mask": [0] * len(prompt) + [1] * len(answer)}


rows = load_dataset("json", data_files="pairs.jsonl", split="train")
rows = rows.map(encode, remove_columns=rows.column_names)
trainer = SFTTrainer(
    model=NAME,
    args=SFTConfig(
        output_dir="out", max_length=2048, completion_only_loss=True, learning_rate=1e-5, bf16=True
    ),
    train_dataset=rows,
    processing_class=tokenizer,
)
trainer.train()
