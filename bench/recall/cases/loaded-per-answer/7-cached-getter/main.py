import os
import threading

import torch
from fastapi import FastAPI, HTTPException
from models import get_model
from pydantic import BaseModel

ADAPTER = os.getenv("ADAPTER", "/models/faq-lora")
lock = threading.Lock()
app = FastAPI()


class Question(BaseModel):
    text: str
    max_new_tokens: int = 256


@app.post("/answer")
def answer(question: Question):
    if not question.text.strip():
        raise HTTPException(400, "empty question")
    with lock:
        model, tok = get_model(ADAPTER)
        enc = tok.apply_chat_template(
            [{"role": "user", "content": question.text}],
            add_generation_prompt=True,
            return_tensors="pt",
            return_dict=True,
        ).to(model.device)
        with torch.inference_mode():
            out = model.generate(**enc, max_new_tokens=question.max_new_tokens, do_sample=True, temperature=0.3, top_p=0.9)
    return {"answer": tok.decode(out[0, enc["input_ids"].shape[1] :], skip_special_tokens=True).strip()}
