"""Writes catalogue texts for 12,000 products with our tuned model. One H100.

    python describe_products.py products.csv texts.jsonl

Resumes: products that are already in the output are skipped.
"""
import csv
import json
import logging
import os
import sys

from vllm import LLM, SamplingParams

log = logging.getLogger("describe")
logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")

MODEL = "/models/catalogue-qwen2.5-7b"
STYLE = "You write catalogue texts: two or three sentences, no superlatives, British spelling."


def done_ids(path):
    if not os.path.exists(path):
        return set()
    with open(path, encoding="utf-8") as f:
        return {json.loads(line)["sku"] for line in f if line.strip()}


def prompt_of(product):
    facts = "\n".join(f"- {k}: {v}" for k, v in product.items() if k not in ("sku",) and v)
    return [
        {"role": "system", "content": STYLE},
        {"role": "user", "content": f"Write the text for this product.\n{facts}"},
    ]


def tidy(text):
    text = " ".join(text.split())
    return text.removeprefix('"').removesuffix('"')


def main(source, target):
    with open(source, newline="", encoding="utf-8") as f:
        products = list(csv.DictReader(f))
    skip = done_ids(target)
    todo = [p for p in products if p["sku"] not in skip]
    log.info("%d products, %d to do", len(products), len(todo))

    llm = LLM(model=MODEL, dtype="bfloat16", max_model_len=2048, gpu_memory_utilization=0.90)
    params = SamplingParams(temperature=0.3, top_p=0.9, max_tokens=160, seed=3)

    with open(target, "a", encoding="utf-8") as out:
        for number, product in enumerate(todo, 1):
            result = llm.chat(prompt_of(product), params, use_tqdm=False)
            text = tidy(result[0].outputs[0].text)
            out.write(json.dumps({"sku": product["sku"], "text": text}, ensure_ascii=False) + "\n")
            out.flush()
            if number % 100 == 0:
                log.info("%d of %d", number, len(todo))


if __name__ == "__main__":
    main(*sys.argv[1:3])
