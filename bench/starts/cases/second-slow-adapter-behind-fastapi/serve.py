# uvicorn serve:app --host 0.0.0.0 --port 8080
import torch
from fastapi import FastAPI
from peft import PeftModel
from pydantic import BaseModel
from transformers import AutoModelForCausalLM, AutoTokenizer

BASE = "models/SmolLM2-135M-Instruct"
ADAPTER = "adapter"

app = FastAPI()
tokenizer = AutoTokenizer.from_pretrained(ADAPTER)
model = AutoModelForCausalLM.from_pretrained(BASE, torch_dtype=torch.bfloat16).to("cuda")
model = PeftModel.from_pretrained(model, ADAPTER)
model.eval()


class Ask(BaseModel):
    messages: list[dict]
    max_new_tokens: int = 200


@app.post("/chat")
def chat(ask: Ask):
    enc = tokenizer.apply_chat_template(
        ask.messages, add_generation_prompt=True, return_tensors="pt", return_dict=True
    ).to(model.device)
    with torch.inference_mode():
        out = model.generate(**enc, max_new_tokens=ask.max_new_tokens, do_sample=False)
    return {
        "answer": tokenizer.decode(out[0, enc["input_ids"].shape[1] :], skip_special_tokens=True)
    }
