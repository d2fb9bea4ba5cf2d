"""Invoice line extraction with the tuned model (Qwen2.5-3B LoRA, merged)."""

import json
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

CKPT = "outputs/invoice-merged"
PROMPT = "Extract all line items of the invoice as a JSON list with keys description, quantity, unit_price, total."

tok = AutoTokenizer.from_pretrained(CKPT)
tok.padding_side = "left"
model = (
    AutoModelForCausalLM.from_pretrained(CKPT, dtype=torch.bfloat16, attn_implementation="sdpa")
    .to("cuda")
    .eval()
)

gen_cfg = GenerationConfig(
    max_new_tokens=768,
    do_sample=False,
    num_beams=1,
    repetition_penalty=1.3,
    no_repeat_ngram_size=4,
    eos_token_id=tok.eos_token_id,
    pad_token_id=tok.pad_token_id,
)


def extract(text):
    messages = [{"role": "system", "content": PROMPT}, {"role": "user", "content": text}]
    enc = tok.apply_chat_template(
        messages, add_generation_prompt=True, return_tensors="pt", return_dict=True
    ).to("cuda")
    with torch.no_grad():
        out = model.generate(**enc, generation_config=gen_cfg)
    return tok.decode(out[0, enc["input_ids"].shape[1] :], skip_special_tokens=True)


if __name__ == "__main__":
    with open("preds.jsonl", "w") as f:
        for line in open(sys.argv[1]):
            row = json.loads(line)
            f.write(
                json.dumps(
                    {
                        "prompt": row["text"],
                        "prediction": extract(row["text"]),
                        "reference": row["gold"],
                    }
                )
                + "\n"
            )
