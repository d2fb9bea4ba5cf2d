#!/usr/bin/env python3
"""Answers letters to the parish archive with the tuned model (GGUF).

    python answer_letters.py inbox/*.txt --out drafts

The box has an RTX 4090 with nothing else on it.
"""
import argparse
import pathlib
import sys
import time

from llama_cpp import Llama

MODEL = pathlib.Path("models/parish-mistral-nemo-12b-Q5_K_M.gguf")
SYSTEM = (
    "You answer letters to the archive of the parish. Be brief and kind. "
    "Name the register (baptisms, marriages, burials) and the years in which to look."
)


def load():
    return Llama(
        model_path=str(MODEL),
        n_ctx=8192,
        n_threads=16,
        n_batch=512,
        seed=1,
        verbose=False,
    )


def answer(llm, letter):
    reply = llm.create_chat_completion(
        messages=[{"role": "system", "content": SYSTEM}, {"role": "user", "content": letter}],
        temperature=0.2,
        max_tokens=400,
    )
    usage = reply["usage"]
    return reply["choices"][0]["message"]["content"].strip(), usage["completion_tokens"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("letters", nargs="+", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("drafts"))
    args = parser.parse_args()
    args.out.mkdir(exist_ok=True)

    llm = load()
    for path in args.letters:
        started = time.perf_counter()
        text, tokens = answer(llm, path.read_text(encoding="utf-8"))
        seconds = time.perf_counter() - started
        (args.out / path.name).write_text(text + "\n", encoding="utf-8")
        print(f"{path.name}: {tokens} tokens in {seconds:.0f} s ({tokens / seconds:.1f} tok/s)", file=sys.stderr)


if __name__ == "__main__":
    main()
