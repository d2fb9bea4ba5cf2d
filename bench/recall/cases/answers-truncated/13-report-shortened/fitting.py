def frame(tok, report):
    ask = "Summarise the inspection report in one or two sentences.\n\n"
    return tok.apply_chat_template([{"role": "user", "content": ask + report}],
                                   tokenize=False, add_generation_prompt=True)


def fit(row, tok, limit):
    """Keep the summary whole; give the report what is left."""
    answer = tok(row["summary"] + "<|im_end|>\n", add_special_tokens=False)["input_ids"]
    around = len(tok(frame(tok, ""), add_special_tokens=False)["input_ids"])
    budget = limit - len(answer) - around - 8
    report = tok(row["report"], add_special_tokens=False)["input_ids"]
    report = report[: budget]
    prompt = tok(frame(tok, tok.decode(report)), add_special_tokens=False)["input_ids"]
    return {
        "input_ids": prompt + answer,
        "attention_mask": [1] * (len(prompt) + len(answer)),
        "labels": [-100] * len(prompt) + answer,
    }
