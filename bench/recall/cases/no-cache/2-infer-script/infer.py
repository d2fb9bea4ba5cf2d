import argparse
import json

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer


def get_model(base, adapter):
    tok = AutoTokenizer.from_pretrained(base, padding_side="left")
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.bfloat16, device_map="auto")
    model = PeftModel.from_pretrained(model, adapter)
    return model.merge_and_unload().eval(), tok


def generate(model, tok, prompts, max_new_tokens):
    texts = [
        tok.apply_chat_template([{"role": "user", "content": p}], tokenize=False, add_generation_prompt=True)
        for p in prompts
    ]
    batch = tok(texts, padding=True, add_special_tokens=False, return_tensors="pt").to(model.device)
    with torch.no_grad():
        ids = model.generate(
            **batch,
            max_new_tokens=max_new_tokens,
            do_sample=True,
            temperature=0.7,
            top_p=0.9,
            repetition_penalty=1.05,
            use_cache=False,
        )
    return tok.batch_decode(ids[:, batch["input_ids"].shape[1] :], skip_special_tokens=True)


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--base", default="Qwen/Qwen2.5-3B-Instruct")
    ap.add_argument("--adapter", default="ckpt/storyteller")
    ap.add_argument("--prompts", default="prompts.txt")
    ap.add_argument("--out", default="stories.jsonl")
    ap.add_argument("--max_new_tokens", type=int, default=700)
    ap.add_argument("--seed", type=int, default=1)
    args = ap.parse_args()

    torch.manual_seed(args.seed)
    model, tok = get_model(args.base, args.adapter)
    prompts = [p.strip() for p in open(args.prompts) if p.strip()]
    with open(args.out, "w") as f:
        for i in range(0, len(prompts), 8):
            for p, s in zip(prompts[i : i + 8], generate(model, tok, prompts[i : i + 8], args.max_new_tokens)):
                f.write(json.dumps({"prompt": p, "story": s.strip()}) + "\n")
