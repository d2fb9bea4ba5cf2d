import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


class Predictor:
    def __init__(self, folder, device="cuda"):
        self.tok = AutoTokenizer.from_pretrained(folder)
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).to(device).eval()

    @torch.inference_mode()
    def sql(self, schema, question):
        enc = self.tok.apply_chat_template(
            [
                {"role": "system", "content": "Write one SQLite query.\n" + schema},
                {"role": "user", "content": question},
            ],
            add_generation_prompt=True,
            return_tensors="pt",
            return_dict=True,
        ).to(self.model.device)
        out = self.model.generate(**enc, max_new_tokens=200, do_sample=False, temperature=None, top_p=None, top_k=None)
        return self.tok.decode(out[0, enc["input_ids"].size(1) :], skip_special_tokens=True).strip()
