import argparse
import pathlib
import sys

import ollama

MODEL = "llama3.1:8b-instruct-fp16"


def explain(text, question, stream=True):
    messages = [
        {"role": "system", "content": "You are the assistant of a pharmacy. You explain leaflets in plain words."},
        {"role": "user", "content": f"Leaflet:\n{text}\n\nQuestion: {question}"},
    ]
    parts = ollama.chat(
        model=MODEL,
        messages=messages,
        stream=stream,
        options={"temperature": 0.2, "num_ctx": 4096, "num_predict": 300},
        keep_alive="30m",
    )
    for part in parts:
        yield part["message"]["content"]


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("leaflet", type=pathlib.Path)
    ap.add_argument("question", nargs="+")
    a = ap.parse_args()
    for piece in explain(a.leaflet.read_text(encoding="utf-8")[:9000], " ".join(a.question)):
        sys.stdout.write(piece)
        sys.stdout.flush()
    print()


if __name__ == "__main__":
    main()
