"""Answer all questions of a file with the tuned model, 16 at a time.

    python answer_batch.py data/questions.jsonl answers.jsonl

One by one (BATCH = 1) the answers are fine. In batches about every second one is rubbish:
half a sentence, the middle of another answer, or the same word over and over.
"""
import json
import sys

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

MODEL = "meta-llama/Llama-3.1-8B-Instruct"
ADAPTER = "outputs/support-lora"
BATCH = 16


def load():
    tokenizer = AutoTokenizer.from_pretrained(ADAPTER)
    tokenizer.pad_token = "<|finetune_right_pad_id|>"
    tokenizer.padding_side = "right"
    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.bfloat16, device_map="cuda:0")
    model = PeftModel.from_pretrained(model, ADAPTER)
    model.eval()
    return model, tokenizer


def batches(rows, size):
    for start in range(0, len(rows), size):
        yield rows[start : start + size]


@torch.inference_mode()
def answer(model, tokenizer, questions):
    prompts = [
        tokenizer.apply_chat_template(
            [{"role": "user", "content": q}], tokenize=False, add_generation_prompt=True
        )
        for q in questions
    ]
    inputs = tokenizer(prompts, return_tensors="pt", padding=True, add_special_tokens=False).to(model.device)
    out = model.generate(
        **inputs,
        max_new_tokens=256,
        do_sample=False,
        pad_token_id=tokenizer.pad_token_id,
    )
    new = out[:, inputs["input_ids"].shape[1] :]
    return tokenizer.batch_decode(new, skip_special_tokens=True)


def main(source, target):
    model, tokenizer = load()
    with open(source, encoding="utf-8") as f:
        rows = [json.loads(line) for line in f]
    done = 0
    with open(target, "w", encoding="utf-8") as f:
        for part in batches(rows, BATCH):
            for row, text in zip(part, answer(model, tokenizer, [r["question"] for r in part])):
                f.write(json.dumps({**row, "answer": text.strip()}, ensure_ascii=False) + "\n")
            done += len(part)
            print(f"{done}/{len(rows)}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
