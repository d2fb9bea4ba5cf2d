"""The same questions to the base and to the DPO adapter."""
import json
import sys

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

BASE = "meta-llama/Llama-3.1-8B-Instruct"
ADAPTER = "runs/dpo-direct-answers/final"

tokenizer = AutoTokenizer.from_pretrained(BASE)
model = AutoModelForCausalLM.from_pretrained(BASE, torch_dtype=torch.bfloat16, device_map="cuda")
model = PeftModel.from_pretrained(model, ADAPTER)
model.eval()


@torch.inference_mode()
def ask(question):
    chat = [{"role": "user", "content": question}]
    inputs = tokenizer.apply_chat_template(
        chat, add_generation_prompt=True, return_tensors="pt", return_dict=True
    ).to(model.device)
    out = model.generate(**inputs, max_new_tokens=300, do_sample=False, pad_token_id=128004)
    return tokenizer.decode(out[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True)


for line in open(sys.argv[1]):
    question = json.loads(line)["question"]
    with model.disable_adapter():
        before = ask(question)
    print(json.dumps({"question": question, "before": before, "after": ask(question)}), flush=True)
