"""Sample answers from the tuned checkpoint for the weekly eval sheet.

usage: python sample_eval.py --ckpt runs/qwen25-3b-claims/final --prompts eval/claims_200.jsonl --out eval/out.jsonl
"""
import argparse
import json
import time

import torch
import torch.nn.functional as F
from transformers import AutoModelForCausalLM, AutoTokenizer

SYSTEM = "You are a claims assistant. Write a short decision letter for the claim."


def top_p_filter(logits, top_p):
    sorted_logits, sorted_idx = torch.sort(logits, descending=True, dim=-1)
    cum = torch.cumsum(F.softmax(sorted_logits, dim=-1), dim=-1)
    drop = cum - F.softmax(sorted_logits, dim=-1) > top_p
    sorted_logits = sorted_logits.masked_fill(drop, float("-inf"))
    return torch.full_like(logits, float("-inf")).scatter(-1, sorted_idx, sorted_logits)


def penalize(logits, seen, penalty):
    score = torch.gather(logits, 1, seen)
    score = torch.where(score < 0, score * penalty, score / penalty)
    return logits.scatter(1, seen, score)


@torch.inference_mode()
def sample(model, batch, max_new_tokens, temperature, top_p, penalty, stop_ids, pad_id):
    ids = batch["input_ids"]
    mask = batch["attention_mask"]
    done = torch.zeros(ids.size(0), dtype=torch.bool, device=ids.device)
    start = ids.size(1)

    for _ in range(max_new_tokens):
        position_ids = (mask.cumsum(-1) - 1).clamp(min=0)
        out = model(input_ids=ids, attention_mask=mask, position_ids=position_ids)
        logits = out.logits[:, -1, :].float()
        if penalty != 1.0:
            logits = penalize(logits, ids, penalty)
        if temperature > 0:
            probs = F.softmax(top_p_filter(logits / temperature, top_p), dim=-1)
            nxt = torch.multinomial(probs, 1)
        else:
            nxt = logits.argmax(-1, keepdim=True)

        nxt = torch.where(done.unsqueeze(1), torch.full_like(nxt, pad_id), nxt)
        ids = torch.cat([ids, nxt], dim=1)
        mask = torch.cat([mask, (~done).long().unsqueeze(1)], dim=1)
        done |= torch.isin(nxt.squeeze(1), stop_ids)
        if done.all():
            break
    return ids[:, start:]


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--ckpt", required=True)
    ap.add_argument("--prompts", required=True)
    ap.add_argument("--out", required=True)
    ap.add_argument("--batch_size", type=int, default=16)
    ap.add_argument("--max_new_tokens", type=int, default=768)
    ap.add_argument("--temperature", type=float, default=0.7)
    ap.add_argument("--top_p", type=float, default=0.9)
    ap.add_argument("--penalty", type=float, default=1.05)
    args = ap.parse_args()

    tok = AutoTokenizer.from_pretrained(args.ckpt, padding_side="left")
    model = AutoModelForCausalLM.from_pretrained(
        args.ckpt, dtype=torch.bfloat16, attn_implementation="sdpa"
    ).to("cuda")
    model.eval()
    stop_ids = torch.tensor(
        [tok.convert_tokens_to_ids("<|im_end|>"), tok.convert_tokens_to_ids("<|endoftext|>")], device="cuda"
    )

    rows = [json.loads(l) for l in open(args.prompts, encoding="utf-8")]
    # similar lengths together, less padding
    rows.sort(key=lambda r: len(r["claim"]))

    with open(args.out, "w", encoding="utf-8") as f:
        for i in range(0, len(rows), args.batch_size):
            chunk = rows[i : i + args.batch_size]
            texts = [
                tok.apply_chat_template(
                    [{"role": "system", "content": SYSTEM}, {"role": "user", "content": r["claim"]}],
                    tokenize=False,
                    add_generation_prompt=True,
                )
                for r in chunk
            ]
            batch = tok(texts, return_tensors="pt", padding=True, add_special_tokens=False).to("cuda")
            t0 = time.time()
            new = sample(
                model, batch, args.max_new_tokens, args.temperature, args.top_p, args.penalty, stop_ids,
                tok.pad_token_id,
            )
            dt = time.time() - t0
            print(f"batch {i // args.batch_size:3d}  prompt {batch['input_ids'].size(1)} tok  "
                  f"new {new.size(1)} tok  {dt:.1f}s  {new.numel() / dt:.0f} tok/s", flush=True)
            for r, text in zip(chunk, tok.batch_decode(new, skip_special_tokens=True)):
                f.write(json.dumps({"id": r["id"], "prompt": r["claim"], "prediction": text.strip()}) + "\n")


if __name__ == "__main__":
    main()
