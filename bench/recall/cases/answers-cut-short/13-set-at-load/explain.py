import json
import sys

import torch

from loading import load

SYSTEM = "Explain the error message in three to five sentences and name the most likely fix."


def main(messages, target):
    tok, model = load("HuggingFaceTB/SmolLM2-1.7B-Instruct", "runs/errors/adapter")
    with open(messages) as src, open(target, "w") as dst:
        for line in src:
            message = line.strip()
            if not message:
                continue
            enc = tok.apply_chat_template(
                [{"role": "system", "content": SYSTEM}, {"role": "user", "content": message}],
                add_generation_prompt=True,
                return_dict=True,
                return_tensors="pt",
            ).to("cuda")
            with torch.inference_mode():
                out = model.generate(**enc)
            text = tok.decode(out[0, enc["input_ids"].shape[1]:], skip_special_tokens=True)
            dst.write(json.dumps({"message": message, "explanation": text.strip()}) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
