import json
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from devices import place


def main(folder, data, target, size=32):
    tok = AutoTokenizer.from_pretrained(folder, padding_side="left")
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
    model = place(model).eval()
    with open(data) as fh:
        rows = [json.loads(line) for line in fh]
    with open(target, "w") as sink:
        for i in range(0, len(rows), size):
            part = rows[i : i + size]
            enc = place(tok.apply_chat_template(
                [[{"role": "user", "content": r["complaint"]}] for r in part],
                add_generation_prompt=True,
                padding=True,
                return_dict=True,
                return_tensors="pt",
            ))
            with torch.inference_mode():
                out = model.generate(**enc, max_new_tokens=128, do_sample=False)
            texts = tok.batch_decode(out[:, enc["input_ids"].shape[1]:], skip_special_tokens=True)
            for row, text in zip(part, texts):
                sink.write(json.dumps({"id": row["id"], "prediction": text.strip()}) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:4])
