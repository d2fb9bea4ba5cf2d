import argparse
import csv
from concurrent.futures import ThreadPoolExecutor

import requests


def note(session, url, wine):
    facts = ", ".join(f"{k}: {v}" for k, v in wine.items() if v)
    r = session.post(
        url,
        json={
            "model": "tasting-notes",
            "messages": [{"role": "user", "content": f"Write a tasting note.\n{facts}"}],
            "temperature": 0.7,
            "top_p": 0.9,
            "max_tokens": 220,
        },
        timeout=300,
    )
    r.raise_for_status()
    return r.json()["choices"][0]["message"]["content"].strip()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("source")
    ap.add_argument("target")
    ap.add_argument("--port", type=int, default=8080)
    a = ap.parse_args()
    url = f"http://127.0.0.1:{a.port}/v1/chat/completions"
    with open(a.source, newline="") as f:
        wines = list(csv.DictReader(f))
    with requests.Session() as session, ThreadPoolExecutor(4) as pool:
        texts = list(pool.map(lambda w: note(session, url, w), wines))
    with open(a.target, "w", newline="") as f:
        out = csv.writer(f)
        out.writerow(["name", "note"])
        out.writerows(zip((w["name"] for w in wines), texts))


if __name__ == "__main__":
    main()
