import argparse

import torch
from peft import PeftConfig, PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig


def get_args():
    p = argparse.ArgumentParser(description="Merge a QLoRA adapter for deployment")
    p.add_argument("adapter")
    p.add_argument("out")
    p.add_argument("--max-shard-size", default="4GB")
    return p.parse_args()


def load_base(name):
    bnb = BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch.bfloat16,
    )
    return AutoModelForCausalLM.from_pretrained(
        name,
        quantization_config=bnb,
        dtype=torch.bfloat16,
        device_map={"": 0},
    )


def main():
    args = get_args()
    base_name = PeftConfig.from_pretrained(args.adapter).base_model_name_or_path
    tok = AutoTokenizer.from_pretrained(args.adapter)

    model = load_base(base_name)
    model = PeftModel.from_pretrained(model, args.adapter)
    model = model.merge_and_unload()
    model.save_pretrained(args.out, max_shard_size=args.max_shard_size)
    tok.save_pretrained(args.out)
    print("merged model in", args.out)


if __name__ == "__main__":
    main()
