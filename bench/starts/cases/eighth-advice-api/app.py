"""Advice API: answers of the tenants' association with our tuned Llama.

    uvicorn app:app --host 0.0.0.0 --port 8080
"""
import logging
import time
from typing import Optional

import torch
from fastapi import FastAPI, HTTPException
from pydantic import BaseModel, Field
from transformers import AutoModelForCausalLM, AutoTokenizer

MODEL_DIR = "/srv/models/tenancy-llama-3.1-8b-merged"
SYSTEM = (
    "You are the assistant of the tenants' association. Answer in at most six sentences, name the paragraph of the law "
    "where there is one, and send people to the office hours when money is at stake."
)

log = logging.getLogger("advice")
logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
app = FastAPI(title="Tenancy advice", version="0.3")


class Question(BaseModel):
    text: str = Field(min_length=5, max_length=4000)
    city: Optional[str] = None
    max_new_tokens: int = Field(default=300, ge=16, le=800)


class Answer(BaseModel):
    text: str
    seconds: float


def build_prompt(tokenizer, question: Question) -> str:
    user = question.text if not question.city else f"(I live in {question.city}.) {question.text}"
    return tokenizer.apply_chat_template(
        [{"role": "system", "content": SYSTEM}, {"role": "user", "content": user}],
        tokenize=False,
        add_generation_prompt=True,
    )


@app.get("/health")
def health():
    return {"status": "ok", "cuda": torch.cuda.is_available()}


@app.post("/answer", response_model=Answer)
def answer(question: Question):
    start = time.perf_counter()
    tokenizer = AutoTokenizer.from_pretrained(MODEL_DIR)
    model = AutoModelForCausalLM.from_pretrained(
        MODEL_DIR, dtype=torch.bfloat16, device_map="cuda:0", attn_implementation="sdpa"
    )
    model.eval()

    inputs = tokenizer(build_prompt(tokenizer, question), return_tensors="pt", add_special_tokens=False).to(model.device)
    if inputs["input_ids"].shape[1] > 6000:
        raise HTTPException(status_code=413, detail="question too long")
    with torch.inference_mode():
        output = model.generate(
            **inputs,
            max_new_tokens=question.max_new_tokens,
            do_sample=False,
            temperature=None,
            top_p=None,
            eos_token_id=[tokenizer.convert_tokens_to_ids("<|eot_id|>"), tokenizer.eos_token_id],
            pad_token_id=tokenizer.eos_token_id,
        )
    text = tokenizer.decode(output[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True).strip()
    seconds = time.perf_counter() - start
    log.info("answered %d characters in %.1f s", len(text), seconds)
    return Answer(text=text, seconds=round(seconds, 2))
