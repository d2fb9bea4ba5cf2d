def close(tok, ids, limit):
    """Cuts to the limit and leaves room for the end marker."""
    return ids[: limit - 1] + [tok.eos_token_id]


def encode(row, tok, limit=768):
    head = f"### Instruction:\n{row['instruction']}\n\n### Response:\n"
    prompt = tok(head)["input_ids"]
    answer = tok(row["output"].strip(), add_special_tokens=False)["input_ids"]
    ids = close(tok, prompt + answer, limit)
    labels = [-100] * min(len(prompt), len(ids)) + ids[len(prompt):]
    return {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": labels}
