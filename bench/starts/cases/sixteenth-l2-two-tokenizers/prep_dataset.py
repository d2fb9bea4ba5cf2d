"""One-off: tokenize the legal QA set so the GPU nodes don't have to."""
from datasets import load_dataset
from transformers import AutoTokenizer

TOKENIZER = "meta-llama/Llama-3.1-8B-Instruct"
MAX_LEN = 2048
SYSTEM = "You are a careful assistant for questions about tenancy law."

tok = AutoTokenizer.from_pretrained(TOKENIZER)


def encode(ex):
    prompt = [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": ex["question"]},
    ]
    full = prompt + [{"role": "assistant", "content": ex["answer"]}]
    p = tok.apply_chat_template(prompt, tokenize=True, add_generation_prompt=True, return_dict=False)
    f = tok.apply_chat_template(full, tokenize=True, return_dict=False)
    return {"input_ids": f, "attention_mask": [1] * len(f), "labels": [-100] * len(p) + f[len(p):], "n": len(f)}


ds = load_dataset("json", data_files={"train": "raw/tenancy_train.jsonl", "val": "raw/tenancy_val.jsonl"})
ds = ds.map(encode, remove_columns=ds["train"].column_names, num_proc=16)
ds = ds.filter(lambda x: x["n"] <= MAX_LEN).remove_columns("n")
ds.save_to_disk("/scratch/tenancy_tok")
print(ds)
