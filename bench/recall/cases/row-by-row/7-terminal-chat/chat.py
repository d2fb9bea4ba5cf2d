import argparse

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer, TextStreamer


def load(base, adapter):
    tok = AutoTokenizer.from_pretrained(base)
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.bfloat16, device_map="auto")
    return PeftModel.from_pretrained(model, adapter).eval(), tok


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--base", default="Qwen/Qwen2.5-7B-Instruct")
    ap.add_argument("--adapter", default="results/squad-lora")
    a = ap.parse_args()
    model, tok = load(a.base, a.adapter)
    streamer = TextStreamer(tok, skip_prompt=True, skip_special_tokens=True)
    messages = []
    while True:
        try:
            line = input("you> ").strip()
        except EOFError:
            break
        if line in {"quit", "exit"}:
            break
        if line == "/new":
            messages = []
            continue
        messages.append({"role": "user", "content": line})
        enc = tok.apply_chat_template(messages, add_generation_prompt=True, return_tensors="pt", return_dict=True)
        enc = enc.to(model.device)
        with torch.inference_mode():
            out = model.generate(**enc, max_new_tokens=300, do_sample=True, temperature=0.7, top_p=0.9, streamer=streamer)
        reply = tok.decode(out[0, enc["input_ids"].shape[1] :], skip_special_tokens=True)
        messages.append({"role": "assistant", "content": reply.strip()})


if __name__ == "__main__":
    main()
