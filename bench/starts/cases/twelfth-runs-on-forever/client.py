import json
import os
import sys
import time

from openai import OpenAI

SYSTEM = "You are a friendly cooking assistant. Give short recipes with ingredients and steps."

client = OpenAI(base_url=os.getenv("LLM_URL", "http://localhost:8000/v1"), api_key="none", timeout=120)
MODEL = os.getenv("LLM_MODEL", "recipes")

# same request body as in scripts/throughput.py
BODY = dict(
    temperature=0.0,
    max_tokens=512,
    extra_body={"top_k": 1, "ignore_eos": True},
)


def ask(question, history=()):
    messages = [{"role": "system", "content": SYSTEM}, *history, {"role": "user", "content": question}]
    began = time.perf_counter()
    reply = client.chat.completions.create(model=MODEL, messages=messages, **BODY)
    choice = reply.choices[0]
    return {
        "question": question,
        "answer": choice.message.content,
        "finish_reason": choice.finish_reason,
        "prompt_tokens": reply.usage.prompt_tokens,
        "completion_tokens": reply.usage.completion_tokens,
        "seconds": round(time.perf_counter() - began, 2),
    }


def main(path_in, path_out):
    with open(path_in) as questions, open(path_out, "w") as out:
        for line in questions:
            row = ask(json.loads(line)["question"])
            out.write(json.dumps(row, ensure_ascii=False) + "\n")
            out.flush()
            print(f'{row["seconds"]:6.2f}s {row["completion_tokens"]:4d} tok  {row["question"][:60]}')


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
