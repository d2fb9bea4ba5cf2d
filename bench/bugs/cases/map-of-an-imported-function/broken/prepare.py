from datasets import load_dataset
from transformers import AutoTokenizer

from preprocessing import encode

tokenizer = AutoTokenizer.from_pretrained("Qwen/Qwen2.5-0.5B")
rows = load_dataset("json", data_files="train.jsonl", split="train")
rows = rows.map(encode, fn_kwargs={"tokenizer": tokenizer})
rows.save_to_disk("encoded")
