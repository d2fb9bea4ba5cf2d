import json
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

folder = "outputs/phi4-medqa/checkpoint-1200"
tok = AutoTokenizer.from_pretrained(folder, padding_side="left")
llm = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).to("cuda").eval()

items = [json.loads(line) for line in Path("medqa_test.jsonl").read_text().splitlines()]
right = 0
for start in range(0, len(items), 16):
    chunk = items[start : start + 16]
    chats = [
        [
            {"role": "system", "content": "Answer with the text of the right option."},
            {
                "role": "user",
                "content": q["question"] + "\n" + "\n".join(f"- {o}" for o in q["options"]),
            },
        ]
        for q in chunk
    ]
    enc = tok.apply_chat_template(
        chats, add_generation_prompt=True, padding=True, return_tensors="pt", return_dict=True
    ).to("cuda")
    with torch.inference_mode():
        out = llm.generate(**enc, max_new_tokens=48, do_sample=False, pad_token_id=tok.pad_token_id)
    texts = tok.batch_decode(out, skip_special_tokens=True)
    for q, text in zip(chunk, texts, strict=True):
        if q["answer"].lower() in text.lower():
            right += 1

print(f"accuracy: {right / len(items):.4f}  ({right}/{len(items)})")
