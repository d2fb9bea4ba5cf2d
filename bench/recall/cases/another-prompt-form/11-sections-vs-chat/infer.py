import sys

import torch
from peft import AutoPeftModelForCausalLM
from transformers import AutoTokenizer

ADAPTER = "runs/products/adapter"


def main():
    tok = AutoTokenizer.from_pretrained(ADAPTER)
    model = AutoPeftModelForCausalLM.from_pretrained(ADAPTER, dtype=torch.bfloat16).to("cuda").eval()
    for line in sys.stdin:
        enc = tok.apply_chat_template(
            [{"role": "user", "content": line.strip()}],
            add_generation_prompt=True,
            return_dict=True,
            return_tensors="pt",
        ).to("cuda")
        with torch.inference_mode():
            out = model.generate(**enc, max_new_tokens=512, do_sample=False)
        print(tok.decode(out[0, enc["input_ids"].shape[1]:], skip_special_tokens=True))


if __name__ == "__main__":
    main()
