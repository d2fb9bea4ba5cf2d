import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig


def build(name, bits):
    tok = AutoTokenizer.from_pretrained(name)
    model = AutoModelForCausalLM.from_pretrained(name, dtype=torch.bfloat16, device_map={"": 0})
    if bits == 4:
        quant = BitsAndBytesConfig(
            load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.bfloat16
        )
        model.config.quantization_config = quant
    elif bits == 8:
        quant = BitsAndBytesConfig(load_in_8bit=True)
        model.config.quantization_config = quant
    model.config.use_cache = False
    model.enable_input_require_grads()
    model = get_peft_model(
        model, LoraConfig(r=32, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM")
    )
    return model, tok
