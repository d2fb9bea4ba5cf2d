"""Batch inference with vLLM, one process per GPU (see run_eval.sh)."""
import argparse
import json

from vllm import LLM, SamplingParams

SYSTEM = "Solve the problem step by step. End with a line 'Answer: <number>'."

ap = argparse.ArgumentParser()
ap.add_argument("--model", required=True)
ap.add_argument("--data", default="test.jsonl")
ap.add_argument("--out", required=True)
ap.add_argument("--rank", type=int, default=0)
ap.add_argument("--world", type=int, default=1)
args = ap.parse_args()

with open(args.data) as f:
    rows = [json.loads(line) for line in f]
rows = rows[args.rank :: args.world]

llm = LLM(model=args.model, dtype="bfloat16", max_model_len=4096, gpu_memory_utilization=0.9, seed=0)
params = SamplingParams(temperature=0.0, max_tokens=1024)

chats = [
    [{"role": "system", "content": SYSTEM}, {"role": "user", "content": r["question"]}]
    for r in rows
]
outs = llm.chat(chats, params)

with open(args.out, "w") as f:
    for o in outs:
        f.write(json.dumps({"output": o.outputs[0].text, "finish_reason": o.outputs[0].finish_reason}) + "\n")
print(f"rank {args.rank}: {len(outs)} answers -> {args.out}")
