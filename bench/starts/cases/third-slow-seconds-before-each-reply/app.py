import torch
from fastapi import FastAPI
from peft import PeftModel
from pydantic import BaseModel
from transformers import AutoModelForCausalLM, AutoTokenizer

app = FastAPI()
BASE = "mistralai/Mistral-7B-Instruct-v0.3"
ADAPTER = "adapters/house-style"


class Ask(BaseModel):
    question: str
    max_tokens: int = 160


def get_model():
    tokenizer = AutoTokenizer.from_pretrained(BASE)
    model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.bfloat16, device_map="cuda:0")
    model = PeftModel.from_pretrained(model, ADAPTER).merge_and_unload()
    return tokenizer, model.eval()


@app.post("/ask")
def ask(body: Ask):
    tokenizer, model = get_model()
    ids = tokenizer.apply_chat_template(
        [{"role": "user", "content": body.question}],
        add_generation_prompt=True,
        return_tensors="pt",
        return_dict=True,
    ).to(model.device)
    with torch.inference_mode():
        out = model.generate(
            **ids,
            max_new_tokens=body.max_tokens,
            do_sample=True,
            temperature=0.3,
            pad_token_id=tokenizer.eos_token_id,
        )
    return {
        "answer": tokenizer.decode(out[0, ids["input_ids"].shape[1] :], skip_special_tokens=True)
    }
