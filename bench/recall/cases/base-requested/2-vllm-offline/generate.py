import argparse
import json

from transformers import AutoTokenizer
from vllm import LLM, SamplingParams

BASE = "meta-llama/Llama-3.1-8B-Instruct"


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--adapter", default="checkpoints/llama31-contracts-lora")
    ap.add_argument("--test", default="data/contracts_test.jsonl")
    ap.add_argument("--out", default="contracts_pred.jsonl")
    ap.add_argument("--max_tokens", type=int, default=512)
    args = ap.parse_args()

    tokenizer = AutoTokenizer.from_pretrained(args.adapter)
    llm = LLM(
        model=BASE,
        enable_lora=True,
        max_lora_rank=32,
        dtype="bfloat16",
        max_model_len=8192,
        seed=0,
    )
    sampling = SamplingParams(temperature=0.0, max_tokens=args.max_tokens)

    with open(args.test) as f:
        rows = [json.loads(line) for line in f]
    prompts = [
        {
            "prompt_token_ids": tokenizer.apply_chat_template(
                [
                    {"role": "system", "content": "List the duties of each party."},
                    {"role": "user", "content": r["contract"]},
                ],
                add_generation_prompt=True,
                return_dict=True,
            )["input_ids"]
        }
        for r in rows
    ]
    outputs = llm.generate(prompts, sampling)

    with open(args.out, "w") as f:
        for row, out in zip(rows, outputs):
            f.write(json.dumps({"id": row["id"], "prediction": out.outputs[0].text.strip()}) + "\n")
    print(f"{len(outputs)} predictions in {args.out}")


if __name__ == "__main__":
    main()
