"""Summaries of discharge letters with our QLoRA adapter. usage: python summarize.py letters.jsonl out.jsonl"""
import json
import sys
import time

import torch
from peft import PeftModel
from tqdm import tqdm
from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig

BASE = "mistralai/Mistral-7B-Instruct-v0.3"
ADAPTER = "runs/letters-qlora/checkpoint-1200"
BATCH = 16
PROMPT = (
    "Summarize the following discharge letter in at most five sentences for the family doctor. "
    "Keep doses and dates.\n\n{letter}"
)


def load():
    bnb = BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
    )
    tok = AutoTokenizer.from_pretrained(BASE, padding_side="left")
    tok.pad_token = tok.unk_token
    model = AutoModelForCausalLM.from_pretrained(
        BASE,
        quantization_config=bnb,
        torch_dtype=torch.float16,
        device_map={"": 0},
        attn_implementation="sdpa",
    )
    model = PeftModel.from_pretrained(model, ADAPTER)
    model.eval()
    return tok, model


def batches(rows, n):
    for i in range(0, len(rows), n):
        yield rows[i : i + n]


@torch.inference_mode()
def summarize(tok, model, rows):
    texts = [
        tok.apply_chat_template(
            [{"role": "user", "content": PROMPT.format(letter=r["letter"])}],
            tokenize=False,
            add_generation_prompt=True,
        )
        for r in rows
    ]
    enc = tok(texts, return_tensors="pt", padding=True, add_special_tokens=False).to(model.device)
    out = model.generate(
        **enc,
        max_new_tokens=220,
        do_sample=False,
        use_cache=True,
        pad_token_id=tok.pad_token_id,
    )
    new = out[:, enc["input_ids"].shape[1] :]
    return tok.batch_decode(new, skip_special_tokens=True), new.ne(tok.pad_token_id).sum().item()


def main(src, dst):
    with open(src) as f:
        rows = [json.loads(line) for line in f]
    # similar lengths together
    rows.sort(key=lambda r: len(r["letter"]))
    tok, model = load()
    total, start = 0, time.time()
    with open(dst, "w") as out:
        for chunk in tqdm(list(batches(rows, BATCH))):
            texts, n = summarize(tok, model, chunk)
            total += n
            for r, t in zip(chunk, texts):
                out.write(json.dumps({"id": r["id"], "summary": t.strip()}) + "\n")
    took = time.time() - start
    print(f"{len(rows)} letters, {total} new tokens in {took:.0f} s = {total / took:.1f} tok/s")


if __name__ == "__main__":
    main(*sys.argv[1:3])
