import gradio as gr
import torch
from transformers import pipeline

STYLES = {
    "Formal": "Rewrite the text in formal English.",
    "Friendly": "Rewrite the text in a warm, friendly tone.",
    "Short": "Rewrite the text in half the words.",
}


def make_generator():
    return pipeline(
        "text-generation",
        model="exports/rewriter-merged",
        dtype=torch.bfloat16,
        device_map="auto",
    )


def rewrite(text, style, temperature):
    if not text.strip():
        return "", "Nothing to do."
    generator = make_generator()
    chat = [
        {"role": "system", "content": STYLES[style]},
        {"role": "user", "content": text},
    ]
    result = generator(chat, max_new_tokens=400, do_sample=True, temperature=temperature, top_p=0.9, return_full_text=False)
    reply = result[0]["generated_text"].strip()
    return reply, f"{len(text.split())} -> {len(reply.split())} words"


with gr.Blocks(title="Rewriter") as demo:
    gr.Markdown("# Rewriter")
    with gr.Row():
        source = gr.Textbox(lines=10, label="Your text")
        target = gr.Textbox(lines=10, label="Rewritten")
    style = gr.Radio(list(STYLES), value="Formal", label="Style")
    temperature = gr.Slider(0.1, 1.2, value=0.5, label="Temperature")
    note = gr.Markdown()
    gr.Button("Rewrite").click(rewrite, [source, style, temperature], [target, note])

if __name__ == "__main__":
    demo.queue(default_concurrency_limit=1).launch()
