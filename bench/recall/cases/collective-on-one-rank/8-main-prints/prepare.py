import json


def encode_rows(src, dst, tok):
    with open(src, encoding="utf-8") as f, open(dst, "w", encoding="utf-8") as g:
        for line in f:
            row = json.loads(line)
            head = tok.apply_chat_template(
                [{"role": "user", "content": row["claim"]}], tokenize=False, add_generation_prompt=True
            )
            a = tok(head, add_special_tokens=False)["input_ids"]
            b = tok(row["verdict"] + "<|im_end|>\n", add_special_tokens=False)["input_ids"]
            rec = {"input_ids": a + b, "attention_mask": [1] * len(a + b), "labels": [-100] * len(a) + b}
            g.write(json.dumps(rec) + "\n")
