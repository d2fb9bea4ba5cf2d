import streamlit as st
import torch
from peft import AutoPeftModelForCausalLM
from transformers import AutoTokenizer

st.title("Garden helper")


@st.cache_resource(show_spinner="Loading the model")
def load(folder):
    tok = AutoTokenizer.from_pretrained(folder)
    model = AutoPeftModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16, device_map="auto")
    return tok, model.eval()


def reply(messages):
    tok, model = load("checkpoints/garden-lora")
    enc = tok.apply_chat_template(messages, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    enc = enc.to(model.device)
    with torch.inference_mode():
        out = model.generate(**enc, max_new_tokens=256, do_sample=True, temperature=0.6, top_p=0.9)
    return tok.decode(out[0][enc["input_ids"].shape[1] :], skip_special_tokens=True)


messages = st.session_state.setdefault("messages", [])
for m in messages:
    st.chat_message(m["role"]).markdown(m["content"])

if prompt := st.chat_input("Ask about plants"):
    messages.append({"role": "user", "content": prompt})
    st.chat_message("user").markdown(prompt)
    text = reply(messages)
    st.chat_message("assistant").markdown(text)
    messages.append({"role": "assistant", "content": text})
