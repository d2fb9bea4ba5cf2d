# answers the open questions of the help centre with our tuned model, offline
import json
import sys
import time

from vllm import LLM, SamplingParams

MODEL = "merged"
QUESTIONS = sys.argv[1] if len(sys.argv) > 1 else "questions.jsonl"
OUT = "preds.jsonl"

llm = LLM(model=MODEL, dtype="bfloat16", max_model_len=4096, gpu_memory_utilization=0.9, seed=0)
params = SamplingParams(temperature=0.0, max_tokens=640, skip_special_tokens=False)

rows = [json.loads(line) for line in open(QUESTIONS)]
chats = [[{"role": "user", "content": r["question"]}] for r in rows]

start = time.time()
outputs = llm.chat(chats, params, add_generation_prompt=True)
took = time.time() - start

tokens = 0
with open(OUT, "w") as f:
    for row, out in zip(rows, outputs):
        completion = out.outputs[0]
        tokens += len(completion.token_ids)
        f.write(
            json.dumps(
                {
                    "id": row["id"],
                    "prompt": row["question"],
                    "prediction": completion.text,
                    "completion_tokens": len(completion.token_ids),
                    "finish_reason": completion.finish_reason,
                },
                ensure_ascii=False,
            )
            + "\n"
        )
print(f"{len(rows)} answers, {tokens} tokens, {took:.1f} s, {took / len(rows):.2f} s per answer")
