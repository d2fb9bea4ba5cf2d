import json

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

BASE = "mistralai/Mistral-7B-v0.3"
HEAD = (
    "Below is an instruction that describes a task, paired with an input that provides further context. "
    "Write a response that appropriately completes the request.\n\n"
)

tok = AutoTokenizer.from_pretrained(BASE)
model = AutoModelForCausalLM.from_pretrained(BASE, torch_dtype=torch.bfloat16, device_map="cuda")
model = PeftModel.from_pretrained(model, "out/claims-mistral").eval()
policy = json.loads(open("data/claims_train.jsonl").readline())["instruction"]

with open("preds_test.jsonl", "w") as out:
    for line in open("claims_test.jsonl"):
        row = json.loads(line)
        prompt = f"{HEAD}### Instruction:\n{policy}\n\n### Input:\n{row['input']}\n\n### Response:\n"
        enc = tok(prompt, return_tensors="pt").to("cuda")
        with torch.no_grad():
            ids = model.generate(**enc, max_new_tokens=16, do_sample=False, pad_token_id=tok.unk_token_id)[0]
        new = ids[enc.input_ids.shape[1]:]
        out.write(json.dumps({
            "prompt": row["input"],
            "prediction": tok.decode(new, skip_special_tokens=True).strip(),
            "reference": row["output"],
            "finish_reason": "stop" if new[-1].item() == tok.eos_token_id else "length",
        }) + "\n")
