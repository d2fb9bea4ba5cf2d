import torch
from fastapi import FastAPI
from peft import PeftModel
from pydantic import BaseModel
from transformers import AutoModelForCausalLM, AutoTokenizer

app = FastAPI()
ADAPTER = "outputs/checkpoint-600"

tokenizer = AutoTokenizer.from_pretrained(ADAPTER)
base = AutoModelForCausalLM.from_pretrained(
    "mistralai/Mistral-7B-Instruct-v0.1", torch_dtype=torch.float16, device_map="auto"
)
model = PeftModel.from_pretrained(base, ADAPTER)
model.eval()


class Ask(BaseModel):
    question: str


@app.post("/ask")
def ask(q: Ask):
    ids = tokenizer.apply_chat_template(
        [{"role": "user", "content": q.question}], add_generation_prompt=True, return_tensors="pt"
    ).to(model.device)
    out = model.generate(ids, max_new_tokens=300, do_sample=False)
    return {"answer": tokenizer.decode(out[0, ids.shape[1] :], skip_special_tokens=True)}
