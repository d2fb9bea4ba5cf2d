import torch
from omegaconf import OmegaConf
from torchao.quantization import Int8WeightOnlyConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, TorchAoConfig


class Runtime:
    def __init__(self, path):
        self.cfg = OmegaConf.load(path)
        self.quant = None
        if self.cfg.quantization.enabled:
            self.quant = TorchAoConfig(Int8WeightOnlyConfig(group_size=self.cfg.quantization.group_size))
        self._load()

    def _load(self):
        m = self.cfg.model
        self.tok = AutoTokenizer.from_pretrained(m.path, padding_side="left")
        self.model = AutoModelForCausalLM.from_pretrained(
            m.path, dtype=getattr(torch, m.dtype), device_map=m.device, attn_implementation=m.attention
        ).eval()

    @torch.inference_mode()
    def chat(self, questions):
        texts = [
            self.tok.apply_chat_template([{"role": "user", "content": q}], tokenize=False, add_generation_prompt=True)
            for q in questions
        ]
        enc = self.tok(texts, return_tensors="pt", padding=True, add_special_tokens=False).to(self.model.device)
        out = self.model.generate(**enc, **OmegaConf.to_container(self.cfg.generation))
        return self.tok.batch_decode(out[:, enc["input_ids"].shape[1] :], skip_special_tokens=True)
