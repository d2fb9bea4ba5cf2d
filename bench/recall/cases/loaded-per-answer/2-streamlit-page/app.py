import streamlit as st
import torch
from peft import AutoPeftModelForCausalLM
from transformers import AutoTokenizer

ADAPTER = "checkpoints/garden-lora"

st.set_page_config(page_title="Garden helper", page_icon="🌱")
st.title("Garden helper")

tokenizer = AutoTokenizer.from_pretrained(ADAPTER)
model = AutoPeftModelForCausalLM.from_pretrained(ADAPTER, dtype=torch.bfloat16, device_map="auto")
model.eval()

if "messages" not in st.session_state:
    st.session_state.messages = []

with st.sidebar:
    max_new_tokens = st.slider("Longest answer (tokens)", 64, 512, 256, step=32)
    temperature = st.slider("Temperature", 0.1, 1.2, 0.6)
    if st.button("New conversation"):
        st.session_state.messages = []

for m in st.session_state.messages:
    with st.chat_message(m["role"]):
        st.markdown(m["content"])

if prompt := st.chat_input("Ask about plants"):
    st.session_state.messages.append({"role": "user", "content": prompt})
    with st.chat_message("user"):
        st.markdown(prompt)
    inputs = tokenizer.apply_chat_template(
        st.session_state.messages, add_generation_prompt=True, return_tensors="pt", return_dict=True
    ).to(model.device)
    with st.chat_message("assistant"), st.spinner("Thinking"), torch.inference_mode():
        out = model.generate(**inputs, max_new_tokens=max_new_tokens, do_sample=True, temperature=temperature)
        text = tokenizer.decode(out[0][inputs["input_ids"].shape[1] :], skip_special_tokens=True)
        st.markdown(text)
    st.session_state.messages.append({"role": "assistant", "content": text})
