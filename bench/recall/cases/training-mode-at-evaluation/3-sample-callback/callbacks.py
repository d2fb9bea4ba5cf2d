import torch
from transformers import TrainerCallback


class ShowReplies(TrainerCallback):
    """Every N steps write what the model now answers to a few fixed questions."""

    def __init__(self, tokenizer, questions, every=50):
        self.tokenizer = tokenizer
        self.questions = questions
        self.every = every

    def on_step_end(self, args, state, control, model=None, **kwargs):
        if state.global_step % self.every or not state.is_world_process_zero:
            return
        for q in self.questions:
            enc = self.tokenizer.apply_chat_template(
                [{"role": "user", "content": q}], add_generation_prompt=True, return_dict=True, return_tensors="pt"
            ).to(model.device)
            with torch.no_grad():
                out = model.generate(**enc, max_new_tokens=400, do_sample=False, use_cache=True)
            reply = self.tokenizer.decode(out[0, enc["input_ids"].shape[1]:], skip_special_tokens=True)
            print(f"[{state.global_step}] {q}\n -> {reply}\n")
