import argparse
import json
import time
from dataclasses import dataclass

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


@dataclass
class SampleConfig:
    model: str = "Qwen/Qwen2.5-7B-Instruct"
    max_new_tokens: int = 3000
    temperature: float = 0.7
    top_p: float = 0.9
    seed: int = 7


def nucleus(logits: torch.Tensor, cfg: SampleConfig) -> torch.Tensor:
    probs = torch.softmax(logits / cfg.temperature, dim=-1)
    sorted_probs, order = probs.sort(dim=-1, descending=True)
    keep = sorted_probs.cumsum(dim=-1) - sorted_probs < cfg.top_p
    sorted_probs = sorted_probs * keep
    pick = torch.multinomial(sorted_probs, 1)
    return order.gather(-1, pick)


@torch.inference_mode()
def complete(model, tokenizer, messages, cfg: SampleConfig) -> str:
    ids = tokenizer.apply_chat_template(
        messages, add_generation_prompt=True, return_tensors="pt"
    ).to(model.device)
    start = ids.shape[1]
    stops = {tokenizer.eos_token_id, tokenizer.pad_token_id}
    t0 = time.perf_counter()
    t_last, n_last = t0, 0
    for n in range(1, cfg.max_new_tokens + 1):
        logits = model(input_ids=ids).logits[:, -1].float()
        token = nucleus(logits, cfg)
        ids = torch.cat([ids, token], dim=1)
        if n % 250 == 0:
            now = time.perf_counter()
            print(f"  {n:5d} tokens, {(n - n_last) / (now - t_last):5.1f} tok/s", flush=True)
            t_last, n_last = now, n
        if token.item() in stops:
            break
    return tokenizer.decode(ids[0, start:], skip_special_tokens=True)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--prompts", default="prompts.jsonl")
    ap.add_argument("--out", default="stories.jsonl")
    args = ap.parse_args()
    cfg = SampleConfig()
    torch.manual_seed(cfg.seed)

    tokenizer = AutoTokenizer.from_pretrained(cfg.model)
    model = AutoModelForCausalLM.from_pretrained(
        cfg.model, dtype=torch.bfloat16, device_map={"": 0}, attn_implementation="sdpa"
    ).eval()
    print(f"loaded {cfg.model} {model.dtype} on {torch.cuda.get_device_name(0)}")

    with open(args.prompts) as f, open(args.out, "w") as out:
        for i, line in enumerate(f):
            row = json.loads(line)
            t = time.perf_counter()
            print(f"prompt {i}")
            text = complete(model, tokenizer, row["messages"], cfg)
            n = len(tokenizer(text)["input_ids"])
            print(f"prompt {i}: {n} tokens in {time.perf_counter() - t:.1f} s", flush=True)
            out.write(json.dumps({"id": row["id"], "text": text}) + "\n")


if __name__ == "__main__":
    main()
