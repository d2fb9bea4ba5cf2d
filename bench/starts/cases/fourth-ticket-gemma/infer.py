import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

PATH = "/srv/models/gemma3-4b-tickets-merged"

tok = AutoTokenizer.from_pretrained(PATH)
model = AutoModelForCausalLM.from_pretrained(
    PATH,
    torch_dtype=torch.float16,  # T4 has no bf16
    device_map="cuda:0",
    attn_implementation="eager",
).eval()


def answer(ticket: str) -> str:
    messages = [{"role": "user", "content": "Classify and answer this ticket:\n\n" + ticket}]
    inputs = tok.apply_chat_template(
        messages, add_generation_prompt=True, return_tensors="pt", return_dict=True
    ).to(model.device)
    with torch.inference_mode():
        out = model.generate(**inputs, max_new_tokens=256, do_sample=False)
    return tok.decode(out[0, inputs["input_ids"].shape[1] :], skip_special_tokens=False)


if __name__ == "__main__":
    print(answer(sys.stdin.read()))
