import torch
from peft import PeftConfig, PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

ADAPTER = "runs/qa/adapter"
OUT = "runs/qa/plain"


def main():
    name = PeftConfig.from_pretrained(ADAPTER).base_model_name_or_path
    base = AutoModelForCausalLM.from_pretrained(name, dtype=torch.bfloat16, device_map="cpu")
    model = PeftModel.from_pretrained(base, ADAPTER).merge_and_unload()
    model.save_pretrained(OUT)
    AutoTokenizer.from_pretrained(ADAPTER).save_pretrained(OUT)


if __name__ == "__main__":
    main()
