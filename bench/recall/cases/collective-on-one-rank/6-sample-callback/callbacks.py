import torch
from transformers import TrainerCallback


class SamplePrinter(TrainerCallback):
    """Shows what the model answers to some fixed questions while it learns."""

    def __init__(self, tokenizer, questions, every=100):
        self.tok, self.questions, self.every = tokenizer, questions, every

    def on_step_end(self, args, state, control, model=None, **kwargs):
        if state.global_step % self.every:
            return
        if not state.is_world_process_zero:
            return
        model.eval()
        for q in self.questions:
            text = self.tok.apply_chat_template(
                [{"role": "user", "content": q}], tokenize=False, add_generation_prompt=True
            )
            enc = self.tok(text, return_tensors="pt", add_special_tokens=False).to(args.device)
            with torch.no_grad():
                out = model.generate(**enc, max_new_tokens=128, do_sample=False, use_cache=True)
            print(q, "->", self.tok.decode(out[0, enc["input_ids"].shape[1] :], skip_special_tokens=True))
        model.train()
