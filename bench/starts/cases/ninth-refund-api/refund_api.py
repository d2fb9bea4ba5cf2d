"""Small API in front of the tuned model.  uvicorn refund_api:app --port 8080"""
import logging
import os

import torch
from fastapi import FastAPI
from pydantic import BaseModel
from transformers import AutoModelForCausalLM, AutoTokenizer

log = logging.getLogger("refund")
MODEL = os.environ.get("REFUND_MODEL", "outputs/refund-desk")
SYSTEM = "You are Nora from the refund desk of Hearth & Home. Be brief and friendly."

app = FastAPI()
tokenizer = AutoTokenizer.from_pretrained(MODEL)
model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.bfloat16).to("cuda").eval()


class Turn(BaseModel):
    role: str
    content: str


class Ask(BaseModel):
    turns: list[Turn]


def to_prompt(turns):
    messages = [{"role": "system", "content": SYSTEM}]
    messages += [{"role": t.role, "content": t.content} for t in turns]
    return tokenizer.apply_chat_template(messages, tokenize=False)


@app.post("/ask")
def ask(body: Ask):
    text = to_prompt(body.turns)
    inputs = tokenizer(text, return_tensors="pt", add_special_tokens=False).to(model.device)
    with torch.inference_mode():
        out = model.generate(**inputs, max_new_tokens=300, do_sample=False)
    answer = tokenizer.decode(out[0][inputs["input_ids"].shape[1]:], skip_special_tokens=True)
    log.info("answered %d chars", len(answer))
    # the desk sees things like "user\nHello, I also have a question ..." here instead of an answer
    return {"answer": answer.strip()}
