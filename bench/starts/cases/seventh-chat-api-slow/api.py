"""Chat endpoint of the tuned model.  uvicorn api:app --port 8010

A 300 token answer takes over a minute, and every further token is slower than the one before.
"""
import logging
import time

import torch
from fastapi import FastAPI, HTTPException
from pydantic import BaseModel
from transformers import AutoModelForCausalLM, AutoTokenizer

log = logging.getLogger("uvicorn.error")
MODEL_DIR = "out/insurance-merged"
SYSTEM = "You are the assistant of Havel Insurance. Be polite and precise."

tokenizer = AutoTokenizer.from_pretrained(MODEL_DIR)
model = AutoModelForCausalLM.from_pretrained(
    MODEL_DIR,
    dtype=torch.bfloat16,
    attn_implementation="sdpa",
    device_map="cuda:0",
)
model.eval()

GENERATION = dict(
    max_new_tokens=400,
    do_sample=True,
    temperature=0.3,
    top_p=0.9,
    use_cache=False,
    pad_token_id=tokenizer.pad_token_id,
    eos_token_id=tokenizer.convert_tokens_to_ids("<|eot_id|>"),
)

app = FastAPI(title="havel-chat")


class Turn(BaseModel):
    role: str
    content: str


class Request(BaseModel):
    turns: list[Turn]


class Reply(BaseModel):
    content: str
    tokens: int
    seconds: float


@app.get("/health")
def health():
    return {"ok": True}


@app.post("/chat", response_model=Reply)
def chat(request: Request):
    if not request.turns or request.turns[-1].role != "user":
        raise HTTPException(422, "the last turn must be the user's")
    messages = [{"role": "system", "content": SYSTEM}]
    messages += [turn.model_dump() for turn in request.turns]
    inputs = tokenizer.apply_chat_template(
        messages, add_generation_prompt=True, return_tensors="pt", return_dict=True
    ).to(model.device)
    start = time.perf_counter()
    with torch.inference_mode():
        out = model.generate(**inputs, **GENERATION)
    new = out[0, inputs["input_ids"].shape[1]:]
    seconds = time.perf_counter() - start
    log.info("%d tokens in %.1f s, %.1f tokens/s", len(new), seconds, len(new) / seconds)
    return Reply(content=tokenizer.decode(new, skip_special_tokens=True), tokens=len(new), seconds=seconds)
