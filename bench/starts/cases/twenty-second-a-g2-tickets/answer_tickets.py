import json
import sys

import torch
from transformers import AutoModelForCausalLM

from common import build, load_tokenizer

PATH = "out/tickets/final"


@torch.inference_mode()
def answer(model, tok, questions, bs=8):
    for i in range(0, len(questions), bs):
        chunk = questions[i : i + bs]
        texts = [tok.apply_chat_template(build(q), tokenize=False, add_generation_prompt=True) for q in chunk]
        enc = tok(texts, return_tensors="pt", padding=True, add_special_tokens=False).to(model.device)
        out = model.generate(**enc, max_new_tokens=160, do_sample=False)
        for row in out[:, enc["input_ids"].shape[1] :]:
            yield tok.decode(row, skip_special_tokens=True)


if __name__ == "__main__":
    tok = load_tokenizer(PATH)
    model = AutoModelForCausalLM.from_pretrained(PATH, torch_dtype=torch.bfloat16, device_map="cuda").eval()
    rows = [json.loads(l) for l in open(sys.argv[1], encoding="utf-8")]
    with open("answers.jsonl", "w", encoding="utf-8") as f:
        for r, a in zip(rows, answer(model, tok, [r["question"] for r in rows])):
            f.write(json.dumps({"question": r["question"], "answer": r["answer"], "generated": a}, ensure_ascii=False) + "\n")
