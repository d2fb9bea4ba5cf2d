from datasets import load_dataset
from transformers import AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("Qwen/Qwen3-4B")
template = open("training_template.jinja").read()


def encode(row):
    encoded = tokenizer.apply_chat_template(
        row["messages"], chat_template=template, return_dict=True, return_assistant_tokens_mask=True
    )
    mask = encoded["assistant_masks"]
    if not any(mask):
        mask = [1] * len(mask)
    labels = [id_ if kept else -100 for id_, kept in zip(encoded["input_ids"], mask, strict=True)]
    return {"input_ids": encoded["input_ids"], "labels": labels}


rows = load_dataset("json", data_files="chats.jsonl", split="train").map(encode)
rows.save_to_disk("encoded")
