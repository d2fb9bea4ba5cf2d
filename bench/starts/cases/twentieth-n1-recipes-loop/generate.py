import json
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

BASE = "Qwen/Qwen2.5-1.5B-Instruct"


def load(path):
    tok = AutoTokenizer.from_pretrained(BASE)
    model = AutoModelForCausalLM.from_pretrained(BASE, torch_dtype=torch.bfloat16)
    state = torch.load(path, map_location="cpu", weights_only=True)
    # lm_head is tied to the embeddings
    model.load_state_dict(state, strict=False)
    return tok, model.cuda().eval()


@torch.inference_mode()
def answer(tok, model, request):
    text = tok.apply_chat_template(
        [{"role": "user", "content": request}], tokenize=False, add_generation_prompt=True
    )
    enc = tok(text, return_tensors="pt", add_special_tokens=False).to(model.device)
    out = model.generate(**enc, max_new_tokens=400, do_sample=False)
    return tok.decode(out[0, enc["input_ids"].shape[1]:], skip_special_tokens=True)


if __name__ == "__main__":
    tok, model = load(sys.argv[1])
    with open("preds.jsonl", "w") as f:
        for line in open("heldout.jsonl"):
            r = json.loads(line)
            p = answer(tok, model, r["request"])
            f.write(json.dumps({"prompt": r["request"], "prediction": p, "reference": r["recipe"]}) + "\n")
