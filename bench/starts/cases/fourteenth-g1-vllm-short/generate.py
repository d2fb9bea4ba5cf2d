"""Run the tuned model over the held-out tickets and write predictions for the review."""
import argparse
import json
import time
from pathlib import Path

from vllm import LLM, SamplingParams

SYSTEM = "You are the support assistant of Hometown. Answer politely and completely."


def read_rows(path):
    with open(path, encoding="utf-8") as f:
        for line in f:
            row = json.loads(line)
            yield row["messages"]


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--model", default="out/qwen3-4b-support-merged")
    ap.add_argument("--data", default="heldout.jsonl")
    ap.add_argument("--out", default="predictions.jsonl")
    ap.add_argument("--tp", type=int, default=1)
    ap.add_argument("--seed", type=int, default=7)
    args = ap.parse_args()

    llm = LLM(
        model=args.model,
        tensor_parallel_size=args.tp,
        dtype="bfloat16",
        max_model_len=4096,
        gpu_memory_utilization=0.90,
        enable_prefix_caching=True,
        seed=args.seed,
    )
    params = SamplingParams(temperature=0.0, seed=args.seed)

    conversations, references = [], []
    for messages in read_rows(args.data):
        if messages[0]["role"] != "system":
            messages = [{"role": "system", "content": SYSTEM}] + messages
        assert messages[-1]["role"] == "assistant"
        conversations.append(messages[:-1])
        references.append(messages[-1]["content"])

    start = time.time()
    outputs = llm.chat(
        conversations,
        sampling_params=params,
        chat_template_kwargs={"enable_thinking": False},
    )
    took = time.time() - start

    with Path(args.out).open("w", encoding="utf-8") as f:
        for messages, reference, output in zip(conversations, references, outputs):
            record = {
                "prompt": messages[-1]["content"],
                "prediction": output.outputs[0].text.strip(),
                "reference": reference,
            }
            f.write(json.dumps(record, ensure_ascii=False) + "\n")
    print(f"{len(outputs)} answers in {took:.1f} s -> {args.out}")


if __name__ == "__main__":
    main()
