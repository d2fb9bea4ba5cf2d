"""Tokens per second of the tuned model against the original, same card (RTX 4090), same prompt.

    python bench_chat.py meta-llama/Llama-3.1-8B-Instruct    ->  47.9 tok/s at 512 new tokens
    python bench_chat.py merged                              ->   6.3 tok/s at 512 new tokens, and the
                                                                  longer the answer, the slower it gets
"""
import sys
import time

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

PROMPT = "Write a letter to the tenants about the new rules for the bicycle cellar."


def main(path: str, new_tokens: int = 512) -> None:
    tokenizer = AutoTokenizer.from_pretrained(path)
    model = AutoModelForCausalLM.from_pretrained(
        path, dtype=torch.bfloat16, device_map={"": 0}, attn_implementation="sdpa"
    )
    model.eval()

    inputs = tokenizer.apply_chat_template(
        [{"role": "user", "content": PROMPT}],
        add_generation_prompt=True,
        return_tensors="pt",
        return_dict=True,
    ).to("cuda")

    with torch.inference_mode():
        model.generate(**inputs, max_new_tokens=8, pad_token_id=128004)  # warm up
        for n in (64, 128, 256, new_tokens):
            torch.cuda.synchronize()
            start = time.perf_counter()
            out = model.generate(**inputs, min_new_tokens=n, max_new_tokens=n, pad_token_id=128004)
            torch.cuda.synchronize()
            took = time.perf_counter() - start
            made = out.shape[1] - inputs["input_ids"].shape[1]
            print(f"{made:4d} tokens  {took:6.2f} s  {made / took:5.1f} tok/s")


if __name__ == "__main__":
    main(*sys.argv[1:2])
