"""Nightly extraction job: OCR text of invoices -> JSON (fine-tuned Mistral, LoRA, vLLM offline)."""
import argparse
import json
import logging
import time
from pathlib import Path

from vllm import LLM, SamplingParams
from vllm.lora.request import LoRARequest

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
log = logging.getLogger("extract")

INSTRUCTION = (
    "Extract the invoice below as JSON with the keys vendor, invoice_no, date, currency, "
    "lines (list of sku, description, qty, unit_price, amount) and total. Answer with JSON only."
)


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--inp", type=Path, required=True)
    p.add_argument("--out", type=Path, required=True)
    p.add_argument("--adapter", default="adapter")
    p.add_argument("--max-model-len", type=int, default=8192)
    return p.parse_args()


def load(path):
    with path.open() as f:
        for line in f:
            yield json.loads(line)


def main():
    a = parse_args()
    rows = list(load(a.inp))
    llm = LLM(
        model="mistralai/Mistral-7B-Instruct-v0.3",
        enable_lora=True,
        max_lora_rank=16,
        max_model_len=a.max_model_len,
        dtype="bfloat16",
        gpu_memory_utilization=0.92,
    )
    params = SamplingParams(
        temperature=0.0,
        repetition_penalty=1.3,
        max_tokens=2048,
    )
    convs = [[{"role": "user", "content": INSTRUCTION + "\n\n" + r["ocr"]}] for r in rows]
    t0 = time.time()
    outs = llm.chat(convs, params, lora_request=LoRARequest("invoices", 1, a.adapter))
    log.info("%d documents in %.1f s", len(rows), time.time() - t0)

    ok = 0
    with a.out.open("w") as f:
        for r, o in zip(rows, outs):
            text = o.outputs[0].text.strip()
            try:
                json.loads(text)
                ok += 1
            except json.JSONDecodeError:
                pass
            f.write(
                json.dumps(
                    {
                        "id": r["id"],
                        "prompt": INSTRUCTION + "\n\n" + r["ocr"],
                        "prediction": text,
                        "reference": json.dumps(r["gold"]) if "gold" in r else None,
                        "finish_reason": o.outputs[0].finish_reason,
                    },
                    ensure_ascii=False,
                )
                + "\n"
            )
    log.info("valid JSON: %d of %d", ok, len(rows))


if __name__ == "__main__":
    main()
