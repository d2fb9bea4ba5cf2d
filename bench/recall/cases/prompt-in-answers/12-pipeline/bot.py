from functools import lru_cache

import torch
from fastapi import FastAPI
from pydantic import BaseModel
from transformers import AutoTokenizer, pipeline

MODEL_DIR = "runs/helpdesk/merged"
SYSTEM = "You answer questions of employees about laptops and accounts."
OPTIONS = {"max_new_tokens": 400, "do_sample": True, "temperature": 0.3, "top_p": 0.9,
           "add_special_tokens": False}

app = FastAPI()


class Question(BaseModel):
    text: str


@lru_cache(maxsize=1)
def engine():
    tok = AutoTokenizer.from_pretrained(MODEL_DIR)
    return pipeline("text-generation", model=MODEL_DIR, tokenizer=tok,
                    dtype=torch.bfloat16, device=0)


def render(text):
    chat = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": text}]
    return engine().tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)


def reply_to(text):
    result = engine()(render(text), **OPTIONS)
    return result[0]["generated_text"].strip()


@app.post("/ask")
def ask(question: Question):
    return {"answer": reply_to(question.text)}
