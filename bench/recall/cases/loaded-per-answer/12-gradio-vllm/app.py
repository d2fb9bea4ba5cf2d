import gradio as gr

from service import Assistant

CONFIG = {
    "base": "Qwen/Qwen2.5-7B-Instruct",
    "adapter": "runs/handbook/adapter",
    "rank": 16,
    "context": 8192,
    "answer_tokens": 512,
}


def on_message(message, history):
    turns = [{"role": t["role"], "content": t["content"]} for t in history]
    turns.append({"role": "user", "content": message})
    return Assistant(CONFIG).reply(turns)


demo = gr.ChatInterface(fn=on_message, title="Handbook assistant")

if __name__ == "__main__":
    demo.queue(default_concurrency_limit=1).launch(server_port=7860)
