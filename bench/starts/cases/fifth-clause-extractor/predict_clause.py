"""Run the tuned clause extractor over the test contracts."""
import json
import sys

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer

BASE = "mistralai/Mistral-7B-Instruct-v0.3"
ADAPTER = "runs/clause-r16/final"


def load():
    tokenizer = AutoTokenizer.from_pretrained(ADAPTER)
    model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.bfloat16, device_map={"": 0})

    # same settings as in training
    lora_config = LoraConfig(
        r=16,
        lora_alpha=32,
        lora_dropout=0.05,
        target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
        task_type="CAUSAL_LM",
    )
    model = get_peft_model(model, lora_config)
    model = PeftModel.from_pretrained(model, ADAPTER)
    model.eval()
    return tokenizer, model


@torch.inference_mode()
def extract(tokenizer, model, row):
    messages = [{"role": "user", "content": row["instruction"] + "\n\n" + row["clause"]}]
    inputs = tokenizer.apply_chat_template(
        messages, add_generation_prompt=True, return_tensors="pt", return_dict=True
    ).to(model.device)
    out = model.generate(**inputs, max_new_tokens=512, do_sample=False)
    return tokenizer.decode(out[0, inputs["input_ids"].shape[1]:], skip_special_tokens=True)


def main(path="data/clauses_test.jsonl"):
    tokenizer, model = load()
    with open(path, encoding="utf-8") as src, open("predictions.jsonl", "w", encoding="utf-8") as dst:
        for line in src:
            row = json.loads(line)
            answer = extract(tokenizer, model, row)
            dst.write(json.dumps({"id": row["id"], "prediction": answer, "reference": row["obligations"]}) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
