"""Perplexity of held-out texts with vLLM's prompt log-probabilities."""
import argparse
import json
import math
import statistics

from vllm import LLM, SamplingParams


def row_perplexity(output):
    values = []
    for token_id, options in zip(output.prompt_token_ids[1:], output.prompt_logprobs[1:]):
        values.append(options[token_id].logprob)
    return math.exp(-sum(values) / len(values))


def corpus_perplexity(llm, texts):
    params = SamplingParams(temperature=0.0, max_tokens=1, prompt_logprobs=0)
    per_row = [row_perplexity(o) for o in llm.generate(texts, params) if len(o.prompt_token_ids) > 1]
    return statistics.mean(per_row)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--model", required=True)
    ap.add_argument("--texts", required=True)
    ap.add_argument("--report", default="ppl.json")
    args = ap.parse_args()
    with open(args.texts, encoding="utf-8") as f:
        texts = [json.loads(line)["text"] for line in f]
    llm = LLM(model=args.model, dtype="bfloat16", max_model_len=4096, enable_prefix_caching=False)
    limit = 4000
    tok = llm.get_tokenizer()
    texts = [t for t in texts if len(tok(t).input_ids) < limit]
    result = {"model": args.model, "rows": len(texts), "perplexity": corpus_perplexity(llm, texts)}
    with open(args.report, "w") as f:
        json.dump(result, f, indent=2)
    print(result)


if __name__ == "__main__":
    main()
