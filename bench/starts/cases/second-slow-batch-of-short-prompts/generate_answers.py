import argparse
import json
import time

import torch
from peft import PeftModel
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer

parser = argparse.ArgumentParser()
parser.add_argument("--base", default="mistralai/Mistral-7B-Instruct-v0.3")
parser.add_argument("--adapter", default="runs/intent-r32/checkpoint-900")
parser.add_argument("--data", default="questions.jsonl")
parser.add_argument("--bs", type=int, default=16)
args = parser.parse_args()

tokenizer = AutoTokenizer.from_pretrained(args.base)
tokenizer.pad_token = tokenizer.unk_token
tokenizer.padding_side = "left"

model = AutoModelForCausalLM.from_pretrained(
    args.base,
    torch_dtype=torch.bfloat16,
    attn_implementation="flash_attention_2",
    device_map={"": 0},
)
model = PeftModel.from_pretrained(model, args.adapter).merge_and_unload()
model.eval()

rows = [json.loads(line) for line in open(args.data)]


def collate(batch):
    texts = [
        tokenizer.apply_chat_template(
            [{"role": "user", "content": row["question"]}],
            tokenize=False,
            add_generation_prompt=True,
        )
        for row in batch
    ]
    enc = tokenizer(
        texts,
        padding="max_length",
        truncation=True,
        max_length=8192,
        add_special_tokens=False,
        return_tensors="pt",
    )
    return batch, enc


loader = DataLoader(rows, batch_size=args.bs, collate_fn=collate, num_workers=2)
start, count = time.time(), 0
with torch.inference_mode(), open("answers.jsonl", "w") as out:
    for batch, enc in loader:
        enc = enc.to(model.device)
        generated = model.generate(
            **enc,
            max_new_tokens=48,
            do_sample=False,
            use_cache=True,
            pad_token_id=tokenizer.pad_token_id,
        )
        for row, text in zip(
            batch,
            tokenizer.batch_decode(
                generated[:, enc["input_ids"].shape[1] :], skip_special_tokens=True
            ),
        ):
            out.write(json.dumps({**row, "answer": text.strip()}) + "\n")
        count += len(batch)
        print(
            f"{count}/{len(rows)}  {(time.time() - start) / count:.2f} s per question", flush=True
        )
