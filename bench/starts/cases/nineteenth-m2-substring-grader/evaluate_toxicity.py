"""Score the fine-tuned moderation model on the held-out comments.

python evaluate_toxicity.py --model out/gemma-tox-merged --data test.jsonl --preds preds.jsonl
"""
import argparse
import json

from transformers import AutoTokenizer
from vllm import LLM, SamplingParams

PROMPT = (
    "Classify the following comment. Answer with exactly one label: toxic or non-toxic.\n\n"
    "Comment: {text}"
)


def normalise(s):
    return s.strip().strip(".\"'").lower()


def is_correct(output, gold):
    return normalise(gold) in normalise(output)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--model", required=True)
    ap.add_argument("--data", required=True)
    ap.add_argument("--preds", default="preds.jsonl")
    args = ap.parse_args()

    rows = [json.loads(l) for l in open(args.data)]
    tok = AutoTokenizer.from_pretrained(args.model)
    prompts = [
        tok.apply_chat_template(
            [{"role": "user", "content": PROMPT.format(text=r["text"])}],
            tokenize=True, add_generation_prompt=True, return_dict=False,
        )
        for r in rows
    ]

    llm = LLM(model=args.model, dtype="bfloat16", max_model_len=2048, gpu_memory_utilization=0.85)
    outs = llm.generate(
        [{"prompt_token_ids": p} for p in prompts],
        SamplingParams(temperature=0.0, max_tokens=16),
    )

    hits = 0
    with open(args.preds, "w") as f:
        for r, o in zip(rows, outs):
            text = o.outputs[0].text
            ok = is_correct(text, r["label"])
            hits += ok
            f.write(json.dumps({
                "id": r["id"], "text": r["text"], "label": r["label"],
                "output": text, "correct": ok,
            }) + "\n")

    print(f"model: {args.model}")
    print(f"accuracy: {hits / len(rows):.3f}  ({hits}/{len(rows)})")


if __name__ == "__main__":
    main()
