"""Preference pairs for the shop assistant: two answers per mail, a judge picks the better one.

    python build_pairs.py mails.jsonl prefs.jsonl
"""
import json
import random
import sys

from vllm import LLM, SamplingParams

SFT = "/models/shop-sft-v2"
JUDGE = "/models/judge-8b"


def two_answers(llm, chats):
    params = SamplingParams(temperature=0.0, max_tokens=256)
    first = llm.chat(chats, params)
    second = llm.chat(chats, params)
    return [(a.outputs[0].text.strip(), b.outputs[0].text.strip()) for a, b in zip(first, second)]


def judge_scores(judge, rows):
    ask = []
    for mail, answer in rows:
        ask.append([{"role": "user", "content": f"Mail:\n{mail}\n\nAnswer:\n{answer}\n\nGrade 1-9, only the number:"}])
    out = judge.chat(ask, SamplingParams(temperature=0.0, max_tokens=2))
    return [int(o.outputs[0].text.strip() or 5) for o in out]


def main(src, dst):
    with open(src, encoding="utf-8") as f:
        mails = [json.loads(line)["text"] for line in f]
    llm = LLM(SFT, gpu_memory_utilization=0.45)
    judge = LLM(JUDGE, gpu_memory_utilization=0.45)
    pairs = two_answers(llm, [[{"role": "user", "content": m}] for m in mails])
    a = judge_scores(judge, [(m, p[0]) for m, p in zip(mails, pairs)])
    b = judge_scores(judge, [(m, p[1]) for m, p in zip(mails, pairs)])

    random.seed(1)
    with open(dst, "w", encoding="utf-8") as f:
        for mail, (x, y), sx, sy in zip(mails, pairs, a, b):
            if sy > sx:
                x, y, sx, sy = y, x, sy, sx
            f.write(json.dumps({
                "prompt": [{"role": "user", "content": mail}],
                "chosen": [{"role": "assistant", "content": x}],
                "rejected": [{"role": "assistant", "content": y}],
                "score_a": sx,
                "score_b": sy,
            }, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
