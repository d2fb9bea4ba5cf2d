# answers before / after DPO for the review meeting
import json, sys
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

BASE = "meta-llama/Llama-3.1-8B-Instruct"
adapter = sys.argv[1] if len(sys.argv) > 1 else None
out_path = "answers_after.jsonl" if adapter else "answers_before.jsonl"

tok = AutoTokenizer.from_pretrained(BASE, padding_side="left")
tok.pad_token = "<|finetune_right_pad_id|>"
model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.bfloat16, device_map="cuda:0")
if adapter:
    model = PeftModel.from_pretrained(model, adapter)
    print("loaded", adapter, model.active_adapters)
model.eval()

questions = [json.loads(line)["question"] for line in open("data/review_questions.jsonl")]
with open(out_path, "w") as f:
    for i in range(0, len(questions), 10):
        chats = [[{"role": "user", "content": q}] for q in questions[i:i + 10]]
        enc = tok.apply_chat_template(
            chats, add_generation_prompt=True, padding=True, return_tensors="pt", return_dict=True
        ).to(model.device)
        with torch.no_grad():
            gen = model.generate(**enc, max_new_tokens=300, do_sample=False)
        for q, g in zip(questions[i:i + 10], gen[:, enc["input_ids"].shape[1]:]):
            f.write(json.dumps({"question": q, "answer": tok.decode(g, skip_special_tokens=True)}) + "\n")
