import argparse
import json
from concurrent.futures import ThreadPoolExecutor

from openai import OpenAI

TOPICS = ["finance", "sports", "weather", "politics", "other"]
REQUEST = {
    "model": "topics-llama",
    "temperature": 0.0,
    "max_tokens": 5,
    "extra_body": {"add_generation_prompt": False, "skip_special_tokens": True},
}


def label(client, text):
    r = client.chat.completions.create(
        messages=[
            {"role": "system", "content": "Give the topic of the text: " + ", ".join(TOPICS) + "."},
            {"role": "user", "content": text},
        ],
        **REQUEST,
    )
    word = r.choices[0].message.content.strip().lower()
    return word if word in TOPICS else "other"


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--url", default="http://localhost:8000/v1")
    ap.add_argument("--input", default="news_test.jsonl")
    ap.add_argument("--parallel", type=int, default=48)
    a = ap.parse_args()
    client = OpenAI(base_url=a.url, api_key="none")
    rows = [json.loads(x) for x in open(a.input)]
    with ThreadPoolExecutor(a.parallel) as pool:
        labels = list(pool.map(lambda r: label(client, r["text"]), rows))
    print("accuracy", sum(x == r["topic"] for x, r in zip(labels, rows)) / len(rows))
    with open("labels.jsonl", "w") as f:
        for r, x in zip(rows, labels):
            f.write(json.dumps({"id": r["id"], "label": x}) + "\n")


if __name__ == "__main__":
    main()
