"""Offline summaries of call transcripts."""
import json
from pathlib import Path

from vllm import LLM, SamplingParams

MODEL = "runs/call-summaries"
SYSTEM = "You summarise phone calls. Write three to five sentences and list the agreed next steps."


def conversation(row):
    return [{"role": "system", "content": SYSTEM}, {"role": "user", "content": row["transcript"]}]


def read(path):
    return [json.loads(x) for x in Path(path).read_text(encoding="utf-8").splitlines() if x]


def main():
    rows = read("calls_test.jsonl")
    llm = LLM(model=MODEL, dtype="bfloat16", max_model_len=8192, gpu_memory_utilization=0.9, seed=0)
    params = SamplingParams(temperature=0.0, top_p=1.0, seed=0)
    outputs = llm.chat([conversation(r) for r in rows], params)
    with open("summaries.jsonl", "w", encoding="utf-8") as fh:
        for row, out in zip(rows, outputs):
            record = {"call": row["call"], "summary": out.outputs[0].text.strip()}
            fh.write(json.dumps(record, ensure_ascii=False) + "\n")
    print(len(rows), "summaries written")


if __name__ == "__main__":
    main()
