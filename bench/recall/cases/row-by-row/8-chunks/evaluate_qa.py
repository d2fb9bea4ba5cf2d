import json
import sys

import torch
from batching import chunks
from peft import AutoPeftModelForCausalLM
from tqdm import tqdm
from transformers import AutoTokenizer


def main(adapter, test_file):
    tok = AutoTokenizer.from_pretrained(adapter, padding_side="left")
    model = AutoPeftModelForCausalLM.from_pretrained(adapter, dtype=torch.bfloat16, device_map="auto").eval()
    rows = [json.loads(line) for line in open(test_file)]
    answers = [None] * len(rows)
    for example in tqdm(chunks(rows, 24, key=lambda r: len(r["context"]))):
        chats = [
            [{"role": "user", "content": f"{r['context']}\n\nQuestion: {r['question']}"}] for _, r in example
        ]
        enc = tok.apply_chat_template(
            chats, add_generation_prompt=True, padding=True, return_tensors="pt", return_dict=True
        ).to(model.device)
        with torch.no_grad():
            out = model.generate(**enc, max_new_tokens=32, do_sample=False, temperature=None, top_p=None, top_k=None)
        texts = tok.batch_decode(out[:, enc["input_ids"].shape[1] :], skip_special_tokens=True)
        for (position, _), text in zip(example, texts):
            answers[position] = text.strip()
    hits = sum(a in r["answers"] for a, r in zip(answers, rows))
    print(f"exact match {100 * hits / len(rows):.2f}")
    with open("predictions.json", "w") as f:
        json.dump(answers, f, indent=1)


if __name__ == "__main__":
    main(*sys.argv[1:3])
