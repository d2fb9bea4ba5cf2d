import os
import time

import torch
from fastapi import FastAPI
from pydantic import BaseModel
from transformers import AutoModelForCausalLM, AutoTokenizer

MODEL_DIR = os.environ.get("MODEL_DIR", "outputs/returns-desk-merged")

app = FastAPI()
tokenizer = AutoTokenizer.from_pretrained(MODEL_DIR)
model = AutoModelForCausalLM.from_pretrained(MODEL_DIR, torch_dtype=torch.float16, device_map="cuda:0")
model.eval()


class Ask(BaseModel):
    question: str
    max_new_tokens: int = 200


@app.post("/answer")
def answer(ask: Ask):
    started = time.time()
    inputs = tokenizer.apply_chat_template(
        [{"role": "user", "content": ask.question}],
        add_generation_prompt=True,
        return_tensors="pt",
        return_dict=True,
    ).to(model.device)
    with torch.inference_mode():
        out = model.generate(**inputs, max_new_tokens=ask.max_new_tokens, do_sample=False)
    new = out[0, inputs["input_ids"].shape[1]:]
    return {
        "answer": tokenizer.decode(new, skip_special_tokens=False),
        "new_tokens": int(new.shape[0]),
        "seconds": round(time.time() - started, 2),
    }
