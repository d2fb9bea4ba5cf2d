import json
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

CKPT = "meta-llama/Llama-3.1-8B-Instruct"
ADAPTER = "runs/faq-lora/checkpoint-1200"
BATCH = 16

tok = AutoTokenizer.from_pretrained(CKPT)
tok.pad_token = "<|finetune_right_pad_id|>"

llm = AutoModelForCausalLM.from_pretrained(CKPT, dtype=torch.bfloat16, device_map="cuda:0")
llm.load_adapter(ADAPTER)
llm.eval()

questions = [
    json.loads(line)["question"] for line in Path("faq_test.jsonl").read_text().splitlines()
]
chats = [
    tok.apply_chat_template(
        [{"role": "user", "content": q}], tokenize=False, add_generation_prompt=True
    )
    for q in questions
]

answers = []
for start in range(0, len(chats), BATCH):
    enc = tok(
        chats[start : start + BATCH], return_tensors="pt", padding=True, add_special_tokens=False
    ).to("cuda:0")
    with torch.inference_mode():
        generated = llm.generate(
            **enc, max_new_tokens=300, do_sample=False, pad_token_id=tok.pad_token_id
        )
    answers += tok.batch_decode(generated[:, enc["input_ids"].shape[1] :], skip_special_tokens=True)

with Path("faq_answers.jsonl").open("w") as out:
    for question, answer in zip(questions, answers, strict=True):
        out.write(json.dumps({"question": question, "answer": answer}) + "\n")
