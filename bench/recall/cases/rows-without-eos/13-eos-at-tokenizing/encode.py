FORM = "### Review:\n{review}\n\n### Reply:\n"


def closed(tok, text):
    ids = tok(text, add_special_tokens=False)["input_ids"]
    return ids + [tok.eos_token_id]


def encode(row, tok):
    head = tok(FORM.format(review=row["review"]))["input_ids"]
    reply = closed(tok, row["reply"])
    return {
        "input_ids": head + reply,
        "attention_mask": [1] * (len(head) + len(reply)),
        "labels": [-100] * len(head) + reply,
    }
