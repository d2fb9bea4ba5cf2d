import gradio as gr
import torch
from peft import AutoPeftModelForCausalLM
from transformers import AutoTokenizer

tok = AutoTokenizer.from_pretrained("mistral-alpaca/final")
model = AutoPeftModelForCausalLM.from_pretrained(
    "mistral-alpaca/final", dtype=torch.bfloat16, device_map="auto"
)
model.eval()


def answer(message, history):
    messages = []
    for turn in history:
        messages.append({"role": turn["role"], "content": turn["content"]})
    messages.append({"role": "user", "content": message})
    inputs = tok.apply_chat_template(
        messages, add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    inputs = inputs.to(model.device)
    with torch.no_grad():
        out = model.generate(**inputs, max_new_tokens=400, do_sample=False)
    return tok.decode(out[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True)


gr.ChatInterface(answer, type="messages").launch(server_name="0.0.0.0")
