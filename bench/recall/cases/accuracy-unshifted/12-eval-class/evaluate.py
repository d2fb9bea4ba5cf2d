"""Score a tuned adapter on held-out instruction rows."""
import sys

import torch
from datasets import load_dataset
from peft import PeftModel
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq

from scoring import TokenScore

BASE = "Qwen/Qwen2.5-1.5B-Instruct"


def encode(row, tok):
    head = tok.apply_chat_template([{"role": "user", "content": row["question"]}],
                                   tokenize=False, add_generation_prompt=True)
    p = tok(head, add_special_tokens=False)["input_ids"]
    a = tok(row["answer"] + "<|im_end|>\n", add_special_tokens=False)["input_ids"]
    return {"input_ids": p + a, "attention_mask": [1] * len(p + a), "labels": [-100] * len(p) + a}


def main(adapter):
    tok = AutoTokenizer.from_pretrained(BASE)
    model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.bfloat16).to("cuda")
    model = PeftModel.from_pretrained(model, adapter).eval()
    rows = load_dataset("openai/gsm8k", "main", split="test")
    rows = rows.map(encode, fn_kwargs={"tok": tok}, remove_columns=rows.column_names)
    loader = DataLoader(rows, batch_size=8, collate_fn=DataCollatorForSeq2Seq(tok, label_pad_token_id=-100))
    score = TokenScore()
    for batch in loader:
        batch = {k: v.to("cuda") for k, v in batch.items()}
        with torch.no_grad():
            logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
        score.update(logits, batch["labels"])
    print(f"next-token accuracy: {score.value:.4f}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "runs/gsm8k/adapter")
