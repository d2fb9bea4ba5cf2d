import json
from pathlib import Path

from settings import MODEL, sampling
from vllm import LLM

SYSTEM = "You summarise phone calls. Write three to five sentences and list the agreed next steps."


def conversation(row):
    return [{"role": "system", "content": SYSTEM}, {"role": "user", "content": row["transcript"]}]


def main():
    rows = [json.loads(x) for x in Path("calls_test.jsonl").read_text(encoding="utf-8").splitlines() if x]
    llm = LLM(model=MODEL, dtype="bfloat16", max_model_len=8192, gpu_memory_utilization=0.9)
    outputs = llm.chat([conversation(r) for r in rows], sampling())
    with open("summaries.jsonl", "w", encoding="utf-8") as fh:
        for row, out in zip(rows, outputs):
            fh.write(json.dumps({"call": row["call"], "summary": out.outputs[0].text.strip()}) + "\n")


if __name__ == "__main__":
    main()
