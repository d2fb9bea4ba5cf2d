import logging
import os

import torch
from fastapi import FastAPI, HTTPException
from peft import PeftModel
from pydantic import BaseModel
from transformers import AutoModelForCausalLM, AutoTokenizer

log = logging.getLogger("faq")
BASE = os.getenv("BASE", "Qwen/Qwen2.5-3B-Instruct")
ADAPTER = os.getenv("ADAPTER", "/models/faq-lora")
SYSTEM = "You answer questions about our web shop."

app = FastAPI()


class Question(BaseModel):
    text: str
    max_new_tokens: int = 256


@app.get("/healthz")
def healthz():
    return {"status": "ok"}


@app.post("/answer")
def answer(question: Question):
    if not question.text.strip():
        raise HTTPException(400, "empty question")
    tokenizer = AutoTokenizer.from_pretrained(BASE)
    model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.bfloat16, device_map="auto")
    model = PeftModel.from_pretrained(model, ADAPTER)
    model.eval()

    inputs = tokenizer.apply_chat_template(
        [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question.text}],
        add_generation_prompt=True,
        return_tensors="pt",
        return_dict=True,
    ).to(model.device)
    with torch.inference_mode():
        out = model.generate(**inputs, max_new_tokens=question.max_new_tokens, do_sample=True, temperature=0.3, top_p=0.9)
    reply = tokenizer.decode(out[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
    log.info("answered %d characters", len(reply))
    return {"answer": reply.strip()}
