import argparse
import json
import time

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig, set_seed

parser = argparse.ArgumentParser()
parser.add_argument("--base", default="Qwen/Qwen2.5-7B-Instruct")
parser.add_argument("--adapter", default="out/qwen-contracts/checkpoint-900")
parser.add_argument("--data", default="contracts_test.jsonl")
parser.add_argument("--batch-size", type=int, default=16)
args = parser.parse_args()
set_seed(0)

quant = BitsAndBytesConfig(load_in_8bit=True, llm_int8_threshold=6.0)
tokenizer = AutoTokenizer.from_pretrained(args.base, padding_side="left")
model = AutoModelForCausalLM.from_pretrained(
    args.base,
    quantization_config=quant,
    dtype=torch.float16,
    device_map={"": 0},
    attn_implementation="sdpa",
)
model = PeftModel.from_pretrained(model, args.adapter).eval()
print(
    torch.cuda.get_device_name(0),
    f"{torch.cuda.memory_allocated() / 2**30:.1f} GiB of "
    f"{torch.cuda.get_device_properties(0).total_memory / 2**30:.0f} GiB",
)

rows = [json.loads(x) for x in open(args.data)]
with open("contract_answers.jsonl", "w") as sink, torch.inference_mode():
    for i in range(0, len(rows), args.batch_size):
        part = rows[i : i + args.batch_size]
        texts = [
            tokenizer.apply_chat_template(
                r["messages"][:-1], tokenize=False, add_generation_prompt=True
            )
            for r in part
        ]
        enc = tokenizer(texts, return_tensors="pt", padding=True, add_special_tokens=False).to(0)
        t0 = time.perf_counter()
        out = model.generate(**enc, max_new_tokens=256, do_sample=False)
        new = out[:, enc.input_ids.shape[1] :]
        print(
            f"batch {i // args.batch_size}: {256 / (time.perf_counter() - t0):.1f} tokens/s per row",
            flush=True,
        )
        for r, a in zip(part, tokenizer.batch_decode(new, skip_special_tokens=True)):
            sink.write(json.dumps({"id": r["id"], "answer": a}) + "\n")
