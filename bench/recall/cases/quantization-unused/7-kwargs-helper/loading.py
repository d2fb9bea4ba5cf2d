import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig


def quantization(spec):
    if spec["bits"] == 4:
        return BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype=torch.bfloat16,
        )
    return BitsAndBytesConfig(load_in_8bit=True)


def from_spec(spec):
    kwargs = {"dtype": torch.bfloat16, "device_map": {"": 0}}
    if spec.get("bits", 16) < 16:
        kwargs["quantization_config"] = quantization(spec)
    kwargs.update(spec.get("extra", {}))
    return AutoModelForCausalLM.from_pretrained(spec["name"], **kwargs), AutoTokenizer.from_pretrained(spec["name"])
