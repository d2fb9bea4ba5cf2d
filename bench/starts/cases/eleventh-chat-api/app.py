import logging
import os
import threading
import time

import torch
from fastapi import FastAPI
from pydantic import BaseModel
from transformers import AutoModelForCausalLM, AutoTokenizer

logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=logging.INFO)
log = logging.getLogger("chat-api")

MODEL = os.environ.get("MODEL", "/models/qwen2.5-3b-hotel-merged")
MAX_NEW = int(os.environ.get("MAX_NEW", "160"))

torch.set_float32_matmul_precision("high")
torch._dynamo.config.cache_size_limit = 512
torch._logging.set_logs(recompiles=True)

tokenizer = AutoTokenizer.from_pretrained(MODEL)
model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.bfloat16, device_map="cuda:0")
model.eval()
model.forward = torch.compile(model.forward, mode="reduce-overhead", fullgraph=True, dynamic=False)

lock = threading.Lock()
app = FastAPI(title="hotel concierge")


class Turn(BaseModel):
    role: str
    content: str


class Chat(BaseModel):
    messages: list[Turn]
    max_tokens: int = MAX_NEW


@app.on_event("startup")
def warmup():
    start = time.perf_counter()
    answer([{"role": "user", "content": "Hello"}], 32)
    log.info("warmup done in %.1fs", time.perf_counter() - start)


def answer(messages, max_tokens):
    inputs = tokenizer.apply_chat_template(
        messages, add_generation_prompt=True, return_tensors="pt", return_dict=True
    ).to(model.device)
    n = inputs["input_ids"].shape[1]
    with lock, torch.inference_mode():
        start = time.perf_counter()
        out = model.generate(
            **inputs,
            max_new_tokens=max_tokens,
            do_sample=True,
            temperature=0.6,
            top_p=0.9,
            cache_implementation="static",
            disable_compile=True,  # forward is compiled already
        )
        torch.cuda.synchronize()
        took = time.perf_counter() - start
    new = out[0, n:]
    log.info("prompt=%d new=%d took=%.2fs (%.1f tok/s)", n, len(new), took, len(new) / took)
    return tokenizer.decode(new, skip_special_tokens=True)


@app.get("/health")
def health():
    return {"ok": True}


@app.post("/chat")
def chat(body: Chat):
    text = answer([t.model_dump() for t in body.messages], body.max_tokens)
    return {"role": "assistant", "content": text}
