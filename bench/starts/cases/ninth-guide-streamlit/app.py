"""Ask the museum guide: a small Streamlit front end for our tuned Qwen2.5-3B."""
import time

import streamlit as st
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

BASE = "Qwen/Qwen2.5-3B-Instruct"
ADAPTER = "outputs/museum-lora"
SYSTEM = "You are the guide of the Maritime Museum. Answer in at most four sentences."


def load_model():
    tokenizer = AutoTokenizer.from_pretrained(ADAPTER)
    model = AutoModelForCausalLM.from_pretrained(BASE, torch_dtype=torch.bfloat16, device_map={"": 0})
    model = PeftModel.from_pretrained(model, ADAPTER).merge_and_unload()
    model.eval()
    return tokenizer, model


def build(history, tokenizer):
    messages = [{"role": "system", "content": SYSTEM}] + history[-8:]
    return tokenizer.apply_chat_template(
        messages, add_generation_prompt=True, return_tensors="pt", return_dict=True
    )


def reply(history, tokenizer, model, temperature):
    inputs = build(history, tokenizer).to(model.device)
    with torch.inference_mode():
        output = model.generate(
            **inputs,
            max_new_tokens=200,
            do_sample=temperature > 0,
            temperature=temperature if temperature > 0 else None,
            pad_token_id=tokenizer.pad_token_id,
        )
    return tokenizer.decode(output[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True)


st.set_page_config(page_title="Museum guide", page_icon="⚓")
st.title("Ask the guide")

tokenizer, model = load_model()

if "history" not in st.session_state:
    st.session_state.history = []

with st.sidebar:
    temperature = st.slider("Temperature", 0.0, 1.0, 0.3)
    if st.button("New visitor"):
        st.session_state.history = []

for turn in st.session_state.history:
    st.chat_message(turn["role"]).write(turn["content"])

question = st.chat_input("What would you like to know?")
if question:
    st.session_state.history.append({"role": "user", "content": question})
    st.chat_message("user").write(question)
    began = time.time()
    answer = reply(st.session_state.history, tokenizer, model, temperature)
    st.session_state.history.append({"role": "assistant", "content": answer})
    st.chat_message("assistant").write(answer)
    st.caption(f"{time.time() - began:.1f} s")
