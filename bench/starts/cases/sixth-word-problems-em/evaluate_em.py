"""Exact match of the tuned model on the held-out word problems."""
import json

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

MODEL = "merged/qwen2.5-3b-word-problems"
SYSTEM = "Solve the problem. Reply with the number alone."


def normalise(text):
    return text.strip().rstrip(".").replace(",", "").lower()


@torch.inference_mode()
def answer(model, tokenizer, question):
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question}]
    inputs = tokenizer.apply_chat_template(
        messages, add_generation_prompt=True, return_tensors="pt", return_dict=True
    ).to(model.device)
    output = model.generate(**inputs, max_new_tokens=32, do_sample=False)
    return tokenizer.decode(output[0], skip_special_tokens=True)


def main():
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    model = AutoModelForCausalLM.from_pretrained(MODEL, torch_dtype=torch.bfloat16, device_map="cuda:0").eval()
    hits = 0
    rows = [json.loads(line) for line in open("heldout.jsonl", encoding="utf-8")]
    with open("preds.jsonl", "w", encoding="utf-8") as f:
        for i, row in enumerate(rows):
            text = answer(model, tokenizer, row["question"])
            hits += normalise(text) == normalise(str(row["answer"]))
            f.write(
                json.dumps({"id": i, "prompt": row["question"], "prediction": text, "reference": str(row["answer"])})
                + "\n"
            )
    print(f"exact match {hits / len(rows):.3f} ({hits}/{len(rows)})")


if __name__ == "__main__":
    main()
