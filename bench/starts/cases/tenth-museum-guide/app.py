"""Chat with the museum guide.   streamlit run app.py --server.port 8502"""
from threading import Thread

import streamlit as st
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer, TextIteratorStreamer

BASE = "meta-llama/Llama-3.1-8B-Instruct"
ADAPTER = "adapters/guide-v4"
SYSTEM = "You are the guide of the town museum. Answer in at most five sentences."
MAX_TURNS = 8

st.set_page_config(page_title="Museum guide", page_icon="🏺", layout="centered")


def load_guide():
    tokenizer = AutoTokenizer.from_pretrained(ADAPTER)
    model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.bfloat16, device_map={"": 0})
    model = PeftModel.from_pretrained(model, ADAPTER)
    model = model.merge_and_unload()
    model.eval()
    return tokenizer, model


def stream(tokenizer, model, messages):
    inputs = tokenizer.apply_chat_template(
        messages, add_generation_prompt=True, return_tensors="pt", return_dict=True
    ).to(model.device)
    streamer = TextIteratorStreamer(tokenizer, skip_prompt=True, skip_special_tokens=True)
    worker = Thread(
        target=model.generate,
        kwargs=dict(
            **inputs,
            streamer=streamer,
            max_new_tokens=256,
            do_sample=True,
            temperature=0.6,
            top_p=0.9,
            eos_token_id=[tokenizer.eos_token_id, tokenizer.convert_tokens_to_ids("<|eot_id|>")],
            pad_token_id=tokenizer.convert_tokens_to_ids("<|finetune_right_pad_id|>"),
        ),
    )
    worker.start()
    yield from streamer
    worker.join()


def sidebar():
    with st.sidebar:
        st.image("static/facade.jpg")
        st.caption("Ask about the rooms, the collection or the opening hours.")
        if st.button("New conversation"):
            st.session_state.messages = []


def main():
    sidebar()
    st.title("Ask the guide")
    if "messages" not in st.session_state:
        st.session_state.messages = []

    tokenizer, model = load_guide()

    for message in st.session_state.messages:
        with st.chat_message(message["role"]):
            st.markdown(message["content"])

    question = st.chat_input("What would you like to know?")
    if not question:
        return
    st.session_state.messages.append({"role": "user", "content": question})
    with st.chat_message("user"):
        st.markdown(question)

    history = [{"role": "system", "content": SYSTEM}] + st.session_state.messages[-MAX_TURNS:]
    with st.chat_message("assistant"):
        answer = st.write_stream(stream(tokenizer, model, history))
    st.session_state.messages.append({"role": "assistant", "content": answer})


main()
