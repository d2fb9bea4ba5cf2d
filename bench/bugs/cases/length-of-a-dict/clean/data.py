from transformers import AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("Qwen/Qwen3-4B")


def encode(row):
    messages = row["messages"]
    ids = tokenizer.apply_chat_template(messages, tokenize=True, return_dict=False)
    prompt = tokenizer.apply_chat_template(
        messages[:-1], tokenize=True, add_generation_prompt=True, return_dict=False
    )
    labels = list(ids)
    labels[: len(prompt)] = [-100] * len(prompt)
    return {"input_ids": ids, "labels": labels}
