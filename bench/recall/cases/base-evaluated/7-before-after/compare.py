import argparse
import json

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer


@torch.inference_mode()
def answers(model, tok, questions, size=16):
    texts = []
    for i in range(0, len(questions), size):
        enc = tok.apply_chat_template(
            [[{"role": "user", "content": q}] for q in questions[i : i + size]],
            add_generation_prompt=True, padding=True, return_tensors="pt", return_dict=True,
        ).to(model.device)
        out = model.generate(**enc, max_new_tokens=200, do_sample=False, temperature=None, top_p=None, top_k=None)
        texts += tok.batch_decode(out[:, enc["input_ids"].shape[1] :], skip_special_tokens=True)
    return [t.strip() for t in texts]


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--base_model", default="Qwen/Qwen2.5-3B-Instruct")
    ap.add_argument("--adapter_path", required=True)
    ap.add_argument("--test_file", default="data/test.jsonl")
    a = ap.parse_args()

    tok = AutoTokenizer.from_pretrained(a.base_model, padding_side="left")
    model = AutoModelForCausalLM.from_pretrained(a.base_model, dtype=torch.bfloat16, device_map="auto").eval()
    rows = [json.loads(x) for x in open(a.test_file)]
    questions = [r["question"] for r in rows]

    before = answers(model, tok, questions)
    model = PeftModel.from_pretrained(model, a.adapter_path).eval()
    after = answers(model, tok, questions)

    for name, got in (("base", before), ("tuned", after)):
        score = sum(r["answer"].lower() in g.lower() for r, g in zip(rows, got)) / len(rows)
        print(f"{name:6s} {score:.3f}")
    with open("before_after.json", "w") as f:
        json.dump([{"q": q, "base": b, "tuned": t} for q, b, t in zip(questions, before, after)], f, indent=1)


if __name__ == "__main__":
    main()
