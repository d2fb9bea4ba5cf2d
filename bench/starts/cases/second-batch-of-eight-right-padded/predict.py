import argparse
import json
import logging

import torch
from peft import PeftModel
from tqdm import tqdm
from transformers import AutoModelForCausalLM, AutoTokenizer

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
log = logging.getLogger("predict")

SYSTEM = "You are a helpful assistant."


def batched(items, n):
    for i in range(0, len(items), n):
        yield items[i : i + n]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--base", default="mistralai/Mistral-7B-Instruct-v0.2")
    p.add_argument("--adapter", default="outputs/mistral-alpaca-lora")
    p.add_argument("--test", default="data/test.jsonl")
    p.add_argument("--out", default="preds.jsonl")
    p.add_argument("--batch-size", type=int, default=8)
    args = p.parse_args()

    tokenizer = AutoTokenizer.from_pretrained(args.base)
    tokenizer.pad_token = tokenizer.unk_token
    # same as in training
    tokenizer.padding_side = "right"

    model = AutoModelForCausalLM.from_pretrained(
        args.base, torch_dtype=torch.bfloat16, device_map={"": 0}
    )
    model = PeftModel.from_pretrained(model, args.adapter)
    model.eval()

    rows = [json.loads(line) for line in open(args.test)]
    log.info("%d test rows", len(rows))
    with open(args.out, "w") as out:
        for batch in tqdm(list(batched(rows, args.batch_size))):
            prompts = [
                tokenizer.apply_chat_template(
                    [{"role": "user", "content": r["question"]}],
                    tokenize=False,
                    add_generation_prompt=True,
                )
                for r in batch
            ]
            enc = tokenizer(
                prompts, return_tensors="pt", padding=True, add_special_tokens=False
            ).to(model.device)
            with torch.inference_mode():
                ids = model.generate(
                    **enc, max_new_tokens=200, do_sample=False, pad_token_id=tokenizer.pad_token_id
                )
            texts = tokenizer.batch_decode(
                ids[:, enc["input_ids"].shape[1] :], skip_special_tokens=True
            )
            for r, t in zip(batch, texts):
                out.write(
                    json.dumps({"prompt": r["question"], "prediction": t, "reference": r["answer"]})
                    + "\n"
                )


if __name__ == "__main__":
    main()
