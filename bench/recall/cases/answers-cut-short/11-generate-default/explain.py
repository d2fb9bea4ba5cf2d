"""Write explanations for error messages with the tuned model."""
import argparse
import json

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

SYSTEM = "Explain the error message in three to five sentences and name the most likely fix."


class Explainer:
    def __init__(self, base, adapter):
        self.tok = AutoTokenizer.from_pretrained(base)
        model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.bfloat16).to("cuda")
        self.model = PeftModel.from_pretrained(model, adapter).eval()

    @torch.inference_mode()
    def __call__(self, message):
        model = self.model
        enc = self.tok.apply_chat_template(
            [{"role": "system", "content": SYSTEM}, {"role": "user", "content": message}],
            add_generation_prompt=True,
            return_dict=True,
            return_tensors="pt",
        ).to("cuda")
        out = model.generate(**enc, do_sample=False)
        return self.tok.decode(out[0, enc["input_ids"].shape[1]:], skip_special_tokens=True).strip()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("messages", help="one error message per line")
    ap.add_argument("--base", default="HuggingFaceTB/SmolLM2-1.7B-Instruct")
    ap.add_argument("--adapter", default="runs/errors/adapter")
    ap.add_argument("--out", default="explanations.jsonl")
    args = ap.parse_args()

    explain = Explainer(args.base, args.adapter)
    with open(args.messages) as src, open(args.out, "w") as dst:
        for line in src:
            message = line.strip()
            if not message:
                continue
            dst.write(json.dumps({"message": message, "explanation": explain(message)}) + "\n")


if __name__ == "__main__":
    main()
