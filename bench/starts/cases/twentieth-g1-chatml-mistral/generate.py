import json

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

tok = AutoTokenizer.from_pretrained("outputs", padding_side="left")
model = AutoModelForCausalLM.from_pretrained("mistralai/Mistral-7B-v0.3", torch_dtype=torch.bfloat16, device_map="cuda")
model.resize_token_embeddings(len(tok))
model = PeftModel.from_pretrained(model, "outputs").eval()

with open("questions.txt") as f, open("preds.jsonl", "w") as out:
    for q in f:
        q = q.strip()
        enc = tok.apply_chat_template(
            [{"role": "user", "content": q}], add_generation_prompt=True, return_tensors="pt", return_dict=True
        ).to("cuda")
        gen = model.generate(**enc, max_new_tokens=256, do_sample=False, eos_token_id=tok.eos_token_id, pad_token_id=tok.pad_token_id)
        new = gen[0, enc["input_ids"].shape[1] :]
        out.write(json.dumps({
            "prompt": q,
            "prediction": tok.decode(new, skip_special_tokens=True),
            "n_tokens": len(new),
            "finish_reason": "stop" if new[-1].item() == tok.eos_token_id else "length",
        }) + "\n")
