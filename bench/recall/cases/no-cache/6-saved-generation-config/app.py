import gradio as gr
import torch
from threading import Thread
from transformers import AutoModelForCausalLM, AutoTokenizer, TextIteratorStreamer

FOLDER = "export"

tokenizer = AutoTokenizer.from_pretrained(FOLDER)
model = AutoModelForCausalLM.from_pretrained(FOLDER, dtype=torch.bfloat16, device_map="auto")
model.eval()


def to_messages(history, message):
    messages = [{"role": "system", "content": "You are the guide of the city museum."}]
    messages += [{"role": m["role"], "content": m["content"]} for m in history]
    return messages + [{"role": "user", "content": message}]


def chat(message, history):
    inputs = tokenizer.apply_chat_template(
        to_messages(history, message),
        add_generation_prompt=True,
        return_tensors="pt",
        return_dict=True,
    ).to(model.device)
    streamer = TextIteratorStreamer(tokenizer, skip_prompt=True, skip_special_tokens=True)
    worker = Thread(target=model.generate, kwargs=dict(**inputs, streamer=streamer, max_new_tokens=512))
    worker.start()
    text = ""
    for piece in streamer:
        text += piece
        yield text
    worker.join()


demo = gr.ChatInterface(
    chat,
    title="Museum guide",
    examples=["What is in room 4?", "When was the bronze horse made?"],
    concurrency_limit=1,
)

if __name__ == "__main__":
    demo.queue().launch(server_name="0.0.0.0", server_port=7860)
