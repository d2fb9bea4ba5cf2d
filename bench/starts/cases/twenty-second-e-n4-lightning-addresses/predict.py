import argparse
import json

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from train import MODEL, SYSTEM


def load(path, device):
    model = AutoModelForCausalLM.from_pretrained(MODEL, torch_dtype=torch.bfloat16)
    state = torch.load(path, map_location="cpu", weights_only=False)["state_dict"]
    state = {k.removeprefix("lm."): v for k, v in state.items()}
    model.load_state_dict(state, strict=False)
    return model.to(device).eval()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--ckpt", default="ckpt/best.ckpt")
    ap.add_argument("--data", default="data/val.jsonl")
    ap.add_argument("--out", default="preds.jsonl")
    args = ap.parse_args()

    tok = AutoTokenizer.from_pretrained(MODEL)
    model = load(args.ckpt, "cuda")
    with open(args.out, "w") as out:
        for line in open(args.data):
            row = json.loads(line)
            chat = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": row["raw"]}]
            enc = tok.apply_chat_template(chat, add_generation_prompt=True, return_tensors="pt", return_dict=True).to("cuda")
            with torch.inference_mode():
                ids = model.generate(**enc, max_new_tokens=128, do_sample=False)[0, enc["input_ids"].shape[1]:]
            text = tok.decode(ids, skip_special_tokens=True).strip()
            out.write(json.dumps({"prompt": row["raw"], "prediction": text, "reference": row["parsed"]}) + "\n")


if __name__ == "__main__":
    main()
