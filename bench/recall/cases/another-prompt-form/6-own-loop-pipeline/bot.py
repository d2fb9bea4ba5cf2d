import torch
from fastapi import FastAPI
from pydantic import BaseModel
from transformers import pipeline

app = FastAPI()
generator = pipeline("text-generation", model="out/geology", dtype=torch.bfloat16, device_map="auto")


class Turn(BaseModel):
    question: str


@app.post("/geology")
def geology(turn: Turn):
    messages = [
        {"role": "system", "content": "You are a geologist."},
        {"role": "user", "content": turn.question},
    ]
    result = generator(messages, max_new_tokens=200, do_sample=False, return_full_text=False)
    return {"answer": result[0]["generated_text"].strip()}
