import argparse
import json

import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer


def sample(model, tok, questions, n):
    """n candidate answers for each question"""
    enc = tok.apply_chat_template(
        [[{"role": "user", "content": q}] for q in questions],
        add_generation_prompt=True, padding=True, return_tensors="pt", return_dict=True,
    ).to(model.device)
    model.eval()
    with torch.no_grad():
        out = model.generate(
            **enc, max_new_tokens=300, do_sample=True, temperature=0.8, top_p=0.95, num_return_sequences=n, use_cache=True
        )
    model.train()
    return tok.batch_decode(out[:, enc["input_ids"].shape[1] :], skip_special_tokens=True)


def update(model, tok, opt, pairs):
    for q, a in pairs:
        user = [{"role": "user", "content": q}]
        full = user + [{"role": "assistant", "content": a}]
        ids = tok.apply_chat_template(full, return_tensors="pt", return_dict=True)["input_ids"].to(model.device)
        head = tok.apply_chat_template(user, add_generation_prompt=True, return_dict=True)["input_ids"]
        labels = ids.clone()
        labels[:, : len(head)] = -100
        loss = model(input_ids=ids, labels=labels, use_cache=False).loss / len(pairs)
        loss.backward()
    torch.nn.utils.clip_grad_norm_([p for p in model.parameters() if p.requires_grad], 1.0)
    opt.step()
    opt.zero_grad()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--model", default="Qwen/Qwen2.5-1.5B-Instruct")
    ap.add_argument("--data", default="train.jsonl")
    ap.add_argument("--out", default="out/rft")
    a = ap.parse_args()
    torch.manual_seed(5)
    tok = AutoTokenizer.from_pretrained(a.model, padding_side="left")
    model = AutoModelForCausalLM.from_pretrained(a.model, dtype=torch.bfloat16).cuda()
    model.config.use_cache = False
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model = get_peft_model(model, LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"))
    opt = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4)
    rows = [json.loads(x) for x in open(a.data)]
    for start in range(0, len(rows), 8):
        part = rows[start : start + 8]
        texts = sample(model, tok, [r["question"] for r in part], 4)
        pairs = [(part[i // 4]["question"], t) for i, t in enumerate(texts) if part[i // 4]["answer"] in t]
        if pairs:
            update(model, tok, opt, pairs)
    model.save_pretrained(a.out)
    tok.save_pretrained(a.out)


if __name__ == "__main__":
    main()
