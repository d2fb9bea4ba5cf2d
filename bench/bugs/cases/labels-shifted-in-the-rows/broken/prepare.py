from datasets import load_dataset
from transformers import AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("Qwen/Qwen2.5-0.5B")


def encode(row):
    prompt = tokenizer(row["prompt"])["input_ids"]
    answer = tokenizer(row["answer"] + tokenizer.eos_token)["input_ids"]
    labels = [-100] * (len(prompt) - 1) + answer + [-100]
    return {
        "input_ids": prompt + answer,
        "attention_mask": [1] * (len(prompt) + len(answer)),
        "labels": labels,
    }


rows = load_dataset("json", data_files="pairs.jsonl", split="train").map(encode)
rows.save_to_disk("encoded")
