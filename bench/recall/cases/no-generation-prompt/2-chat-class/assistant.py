import torch
from peft import AutoPeftModelForCausalLM
from transformers import AutoTokenizer


class Assistant:
    """Keeps one conversation with the tuned model."""

    def __init__(self, adapter, system=None, max_new_tokens=400, temperature=0.6):
        self.tokenizer = AutoTokenizer.from_pretrained(adapter)
        self.model = AutoPeftModelForCausalLM.from_pretrained(adapter, dtype=torch.bfloat16, device_map="auto")
        self.model.eval()
        self.system = system
        self.max_new_tokens = max_new_tokens
        self.temperature = temperature
        self.reset()

    def reset(self):
        self.history = [{"role": "system", "content": self.system}] if self.system else []

    @torch.inference_mode()
    def say(self, text):
        self.history.append({"role": "user", "content": text})
        inputs = self.tokenizer.apply_chat_template(self.history, return_tensors="pt", return_dict=True)
        inputs = inputs.to(self.model.device)
        out = self.model.generate(
            **inputs, max_new_tokens=self.max_new_tokens, do_sample=True, temperature=self.temperature, top_p=0.9
        )
        reply = self.tokenizer.decode(out[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True).strip()
        self.history.append({"role": "assistant", "content": reply})
        return reply
