import json

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

tok = AutoTokenizer.from_pretrained("out/chats/adapter", padding_side="left")
base = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B-Instruct", dtype=torch.bfloat16, device_map="auto")
model = PeftModel.from_pretrained(base, "out/chats/adapter").eval()

questions = [json.loads(line)["question"] for line in open("questions.jsonl", encoding="utf-8")]
with open("answers.jsonl", "w", encoding="utf-8") as out:
    for i in range(0, len(questions), 8):
        part = questions[i : i + 8]
        texts = [
            tok.apply_chat_template([{"role": "user", "content": q}], tokenize=False, add_generation_prompt=True)
            for q in part
        ]
        enc = tok(texts, return_tensors="pt", padding=True, add_special_tokens=False).to(model.device)
        with torch.inference_mode():
            gen = model.generate(**enc, max_new_tokens=512, do_sample=False)
        for q, g in zip(part, gen[:, enc["input_ids"].shape[1] :]):
            out.write(json.dumps({"question": q, "answer": tok.decode(g, skip_special_tokens=True)}) + "\n")
