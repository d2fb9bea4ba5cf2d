import logging
import os
import threading
import time
from contextlib import asynccontextmanager

import torch
from fastapi import FastAPI
from pydantic import BaseModel
from transformers import AutoModelForCausalLM, AutoTokenizer

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
log = logging.getLogger("reply-writer")

MODEL_DIR = os.environ["MODEL_DIR"]
MAX_NEW_TOKENS = int(os.environ.get("MAX_NEW_TOKENS", 256))
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

state = {}
lock = threading.Lock()


@asynccontextmanager
async def lifespan(app: FastAPI):
    t0 = time.time()
    state["tok"] = AutoTokenizer.from_pretrained(MODEL_DIR)
    state["model"] = AutoModelForCausalLM.from_pretrained(MODEL_DIR, dtype=torch.bfloat16).to(DEVICE).eval()
    log.info("loaded %s on %s (%s) in %.1fs", MODEL_DIR, state["model"].device, state["model"].dtype, time.time() - t0)
    yield
    state.clear()


app = FastAPI(lifespan=lifespan)


class Mail(BaseModel):
    subject: str
    body: str


@app.get("/healthz")
def healthz():
    return {"ok": "model" in state}


@app.post("/reply")
def reply(mail: Mail):
    tok, model = state["tok"], state["model"]
    messages = [{"role": "user", "content": f"Subject: {mail.subject}\n\n{mail.body}\n\nWrite the reply."}]
    enc = tok.apply_chat_template(messages, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    enc = enc.to(model.device)
    t0 = time.time()
    with lock, torch.inference_mode():
        out = model.generate(
            **enc,
            max_new_tokens=MAX_NEW_TOKENS,
            do_sample=False,
            eos_token_id=tok.eos_token_id,
            pad_token_id=tok.eos_token_id,
        )
    new = out[0, enc["input_ids"].shape[1]:]
    dt = time.time() - t0
    log.info("prompt %d tok, generated %d tok in %.1fs (%.2f tok/s)", enc["input_ids"].shape[1], len(new), dt, len(new) / dt)
    return {"reply": tok.decode(new, skip_special_tokens=True).strip()}
