import os
from contextlib import asynccontextmanager

import torch
from fastapi import FastAPI
from peft import PeftModel
from pydantic import BaseModel, Field
from transformers import AutoModelForCausalLM, AutoTokenizer

BASE = os.environ.get("BASE_MODEL", "mistralai/Mistral-7B-Instruct-v0.3")
ADAPTER = os.environ.get("ADAPTER_DIR", "/srv/adapters/hr-policy")
state = {}


@asynccontextmanager
async def lifespan(app):
    state["tok"] = AutoTokenizer.from_pretrained(ADAPTER)
    model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.bfloat16, device_map="cuda")
    state["model"] = PeftModel.from_pretrained(model, ADAPTER).merge_and_unload().eval()
    yield
    state.clear()


app = FastAPI(title="HR policy assistant", lifespan=lifespan)


class Ask(BaseModel):
    question: str
    max_new_tokens: int = Field(300, ge=1, le=1024)
    temperature: float = Field(0.3, gt=0, le=1.5)


class Reply(BaseModel):
    answer: str


@app.get("/health")
def health():
    return {"ok": "model" in state}


@app.post("/ask", response_model=Reply)
def ask(req: Ask):
    tok, model = state["tok"], state["model"]
    inputs = tok.apply_chat_template(
        [{"role": "user", "content": req.question}],
        add_generation_prompt=True,
        return_tensors="pt",
        return_dict=True,
    ).to(model.device)
    with torch.inference_mode():
        output = model.generate(
            **inputs,
            max_new_tokens=req.max_new_tokens,
            do_sample=True,
            temperature=req.temperature,
            top_p=0.9,
            pad_token_id=tok.eos_token_id,
        )
    text = tok.decode(output[0], skip_special_tokens=True)
    return Reply(answer=text.strip())
