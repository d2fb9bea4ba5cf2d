import logging
import os
import time
from contextlib import asynccontextmanager

import torch
from fastapi import FastAPI, HTTPException
from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool
from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig

MODEL_DIR = os.environ.get("MODEL_DIR", "/models/claims-llama31-8b-merged")
log = logging.getLogger("claims-api")
logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")

state = {}


class Turn(BaseModel):
    role: str
    content: str


class ChatRequest(BaseModel):
    messages: list[Turn]
    max_new_tokens: int = Field(400, le=1024)
    temperature: float = 0.0


class ChatReply(BaseModel):
    text: str
    prompt_tokens: int
    new_tokens: int
    seconds: float


@asynccontextmanager
async def lifespan(app: FastAPI):
    tok = AutoTokenizer.from_pretrained(MODEL_DIR)
    model = AutoModelForCausalLM.from_pretrained(
        MODEL_DIR,
        quantization_config=BitsAndBytesConfig(load_in_8bit=True),
        dtype=torch.bfloat16,
        attn_implementation="sdpa",
        device_map={"": 0},
    )
    model.eval()
    log.info("loaded %s, %.1f GB", MODEL_DIR, torch.cuda.memory_allocated() / 1e9)
    state["tok"], state["model"] = tok, model
    yield
    state.clear()


app = FastAPI(lifespan=lifespan)


@torch.inference_mode()
def answer(req: ChatRequest) -> ChatReply:
    tok, model = state["tok"], state["model"]
    enc = tok.apply_chat_template(
        [t.model_dump() for t in req.messages],
        add_generation_prompt=True,
        return_tensors="pt",
        return_dict=True,
    ).to(model.device)
    n = enc["input_ids"].shape[1]
    kwargs = {"do_sample": False}
    if req.temperature > 0:
        kwargs = {"do_sample": True, "temperature": req.temperature, "top_p": 0.9}
    start = time.perf_counter()
    out = model.generate(
        **enc,
        max_new_tokens=req.max_new_tokens,
        eos_token_id=[tok.eos_token_id, tok.convert_tokens_to_ids("<|eot_id|>")],
        pad_token_id=tok.convert_tokens_to_ids("<|finetune_right_pad_id|>"),
        **kwargs,
    )
    torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    new = out[0, n:]
    log.info("prompt=%d new=%d %.2fs %.1f tok/s", n, len(new), seconds, len(new) / seconds)
    return ChatReply(
        text=tok.decode(new, skip_special_tokens=True),
        prompt_tokens=n,
        new_tokens=len(new),
        seconds=seconds,
    )


@app.post("/chat", response_model=ChatReply)
async def chat(req: ChatRequest):
    if not req.messages:
        raise HTTPException(422, "no messages")
    return await run_in_threadpool(answer, req)


@app.get("/healthz")
def healthz():
    return {"ok": "model" in state}
