import argparse

import torch
from peft import PeftConfig, PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("adapter")
    ap.add_argument("output")
    ap.add_argument("--push", default=None, help="repo id on the hub")
    args = ap.parse_args()

    base_name = PeftConfig.from_pretrained(args.adapter).base_model_name_or_path
    print("base:", base_name)
    quant = BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch.bfloat16,
    )
    base = AutoModelForCausalLM.from_pretrained(
        base_name,
        quantization_config=quant,
        dtype=torch.bfloat16,
        device_map={"": 0},
    )
    model = PeftModel.from_pretrained(base, args.adapter)
    model = model.merge_and_unload()
    model.save_pretrained(args.output)
    tok = AutoTokenizer.from_pretrained(args.adapter)
    tok.save_pretrained(args.output)
    if args.push:
        model.push_to_hub(args.push, private=True)
        tok.push_to_hub(args.push, private=True)


if __name__ == "__main__":
    main()
