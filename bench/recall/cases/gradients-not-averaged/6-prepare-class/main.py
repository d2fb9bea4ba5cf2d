import sys

import yaml
from datasets import load_dataset

from runner import Runner


def rows(path, tok):
    def encode(r):
        head = tok.apply_chat_template(
            [{"role": "user", "content": r["title"]}], tokenize=False, add_generation_prompt=True
        )
        a = tok(head, add_special_tokens=False)["input_ids"]
        b = tok(r["abstract"] + "<|im_end|>\n", add_special_tokens=False)["input_ids"]
        return {"input_ids": a + b, "attention_mask": [1] * len(a + b), "labels": [-100] * len(a) + b}

    ds = load_dataset("json", data_files=path, split="train")
    return ds.map(encode, remove_columns=ds.column_names)


if __name__ == "__main__":
    with open(sys.argv[1]) as f:
        runner = Runner(yaml.safe_load(f), rows)
    runner.train()
    runner.save()
