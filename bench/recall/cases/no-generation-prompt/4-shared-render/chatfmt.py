def to_messages(row, with_answer):
    messages = [
        {"role": "system", "content": "Extract the allergens as a comma-separated list."},
        {"role": "user", "content": row["label"]},
    ]
    if with_answer:
        messages.append({"role": "assistant", "content": ", ".join(row["allergens"])})
    return messages


def render(tok, row, with_answer=True):
    return tok.apply_chat_template(to_messages(row, with_answer), tokenize=False)
