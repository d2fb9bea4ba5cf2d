import json

import torch
from chatfmt import render
from peft import AutoPeftModelForCausalLM
from transformers import AutoTokenizer

OUT = "out/allergens"


def names(text):
    return {t.strip().lower() for t in text.split(",") if t.strip()}


def main(size=32):
    tok = AutoTokenizer.from_pretrained(OUT, padding_side="left")
    model = AutoPeftModelForCausalLM.from_pretrained(OUT, dtype=torch.bfloat16, device_map="auto").eval()
    rows = [json.loads(x) for x in open("data/test.jsonl")]
    tp = fp = fn = 0
    for i in range(0, len(rows), size):
        part = rows[i : i + size]
        enc = tok(
            [render(tok, r, with_answer=False) for r in part], padding=True, add_special_tokens=False, return_tensors="pt"
        ).to(model.device)
        with torch.inference_mode():
            out = model.generate(**enc, max_new_tokens=60, do_sample=False, temperature=None, top_p=None, top_k=None)
        for r, t in zip(part, tok.batch_decode(out[:, enc.input_ids.shape[1] :], skip_special_tokens=True)):
            pred, gold = names(t), {a.lower() for a in r["allergens"]}
            tp, fp, fn = tp + len(pred & gold), fp + len(pred - gold), fn + len(gold - pred)
    print(f"F1 {2 * tp / max(2 * tp + fp + fn, 1):.4f}")


if __name__ == "__main__":
    main()
