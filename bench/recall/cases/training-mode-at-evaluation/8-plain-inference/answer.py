import json
import sys

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

BASE = "Qwen/Qwen2.5-7B-Instruct"
ADAPTER = "tickets-adapter"


def load():
    tokenizer = AutoTokenizer.from_pretrained(BASE)
    base = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.bfloat16, device_map={"": 0})
    return tokenizer, PeftModel.from_pretrained(base, ADAPTER)


@torch.inference_mode()
def reply(tokenizer, model, question):
    enc = tokenizer.apply_chat_template(
        [{"role": "user", "content": question}], add_generation_prompt=True, return_dict=True, return_tensors="pt"
    ).to(model.device)
    out = model.generate(**enc, max_new_tokens=512, do_sample=False)
    return tokenizer.decode(out[0, enc["input_ids"].shape[1]:], skip_special_tokens=True)


def main(path):
    tokenizer, model = load()
    with open(path, encoding="utf-8") as fh:
        for line in fh:
            row = json.loads(line)
            print(json.dumps({"id": row["id"], "reply": reply(tokenizer, model, row["question"])}, ensure_ascii=False))


if __name__ == "__main__":
    main(sys.argv[1])
