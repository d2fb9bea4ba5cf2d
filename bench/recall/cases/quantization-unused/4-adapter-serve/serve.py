import torch
from fastapi import FastAPI
from peft import PeftModel
from pydantic import BaseModel
from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig

BASE = "Qwen/Qwen2.5-7B-Instruct"
ADAPTER = "out/support/adapter"
QUANT = BitsAndBytesConfig(
    load_in_4bit=True,
    bnb_4bit_quant_type="nf4",
    bnb_4bit_compute_dtype=torch.bfloat16,
)

app = FastAPI()
tok = AutoTokenizer.from_pretrained(BASE, padding_side="left")
base = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.bfloat16, device_map="cuda:0")
model = PeftModel.from_pretrained(base, ADAPTER, quantization_config=QUANT)
model.eval()


class Ask(BaseModel):
    question: str
    max_new_tokens: int = 400


@app.post("/answer")
def answer(ask: Ask):
    text = tok.apply_chat_template(
        [{"role": "user", "content": ask.question}], tokenize=False, add_generation_prompt=True
    )
    enc = tok(text, return_tensors="pt", add_special_tokens=False).to(model.device)
    with torch.inference_mode():
        out = model.generate(**enc, max_new_tokens=ask.max_new_tokens, do_sample=False)
    reply = tok.decode(out[0, enc["input_ids"].shape[1] :], skip_special_tokens=True)
    return {"answer": reply.strip()}
