import argparse
import json
from pathlib import Path

from vllm import LLM, SamplingParams

SYSTEM = "Extract the invoice fields as JSON with the keys vendor, number, date, currency and total."


def exact(text, gold):
    try:
        return json.loads(text.strip().removeprefix("```json").removesuffix("```")) == gold
    except json.JSONDecodeError:
        return False


def evaluate(adapter, rows, base):
    rank = json.loads((adapter / "adapter_config.json").read_text())["r"]
    llm = LLM(model=base, enable_lora=True, max_lora_rank=rank, max_model_len=8192,
              enforce_eager=True, gpu_memory_utilization=0.85)
    chats = [[{"role": "system", "content": SYSTEM}, {"role": "user", "content": r["text"]}] for r in rows]
    outs = llm.chat(chats, SamplingParams(temperature=0.0, max_tokens=512))
    texts = [o.outputs[0].text for o in outs]
    ok = [exact(t, r["fields"]) for t, r in zip(texts, rows)]
    return {"checkpoint": adapter.name, "exact": sum(ok) / len(ok), "mean_chars": sum(map(len, texts)) / len(texts)}


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--base", default="Qwen/Qwen2.5-3B-Instruct")
    p.add_argument("--run", type=Path, default=Path("outputs/invoices"))
    p.add_argument("--step", type=int, required=True)
    p.add_argument("--rows", default="invoices_test.jsonl")
    a = p.parse_args()
    rows = [json.loads(x) for x in open(a.rows)]
    result = evaluate(a.run / f"checkpoint-{a.step}", rows, a.base)
    print(json.dumps(result))
    with open("scores.jsonl", "a") as out:
        out.write(json.dumps(result) + "\n")
