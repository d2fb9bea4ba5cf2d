from transformers import AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("Qwen/Qwen3-4B")


def encode(messages):
    ids = tokenizer.apply_chat_template(messages, tokenize=True, return_dict=False)
    labels = [-100] * len(ids)
    for n, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        before = tokenizer.apply_chat_template(
            messages[:n], tokenize=True, add_generation_prompt=True, return_dict=False
        )
        after = tokenizer.apply_chat_template(messages[: n + 1], tokenize=True, return_dict=False)
        assert (
            ids[: len(before)] == before and ids[: len(after)] == after
        ), "the template rewrites earlier turns"
        labels[len(before) : len(after)] = ids[len(before) : len(after)]
    return {"input_ids": ids, "labels": labels}
