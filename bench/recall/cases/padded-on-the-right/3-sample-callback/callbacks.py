import os

import torch
from transformers import TrainerCallback


class EvalSamplesCallback(TrainerCallback):
    """Writes a few model answers to disk at every evaluation."""

    def __init__(self, questions, out_dir, max_new_tokens=128):
        self.questions = questions
        self.out_dir = out_dir
        self.max_new_tokens = max_new_tokens
        os.makedirs(out_dir, exist_ok=True)

    def on_evaluate(self, args, state, control, model=None, processing_class=None, **kwargs):
        tok = processing_class
        chats = [[{"role": "user", "content": q}] for q in self.questions]
        batch = tok.apply_chat_template(
            chats,
            add_generation_prompt=True,
            tokenize=True,
            padding=True,
            return_tensors="pt",
            return_dict=True,
        ).to(model.device)
        was_training = model.training
        model.eval()
        with torch.no_grad():
            out = model.generate(**batch, max_new_tokens=self.max_new_tokens, do_sample=False, use_cache=True)
        if was_training:
            model.train()
        prompt_len = batch["input_ids"].size(1)
        path = os.path.join(self.out_dir, f"step_{state.global_step:06d}.txt")
        with open(path, "w", encoding="utf-8") as f:
            for q, seq in zip(self.questions, out):
                f.write(f"Q: {q}\nA: {tok.decode(seq[prompt_len:], skip_special_tokens=True)}\n\n")
