"""Draft replies for open tickets. Called by the helpdesk every five minutes."""
import argparse
import json
import logging
import time
from pathlib import Path

from openai import OpenAI

log = logging.getLogger("drafts")

MODEL = "Qwen/Qwen2.5-14B-Instruct"
SYSTEM_PROMPT = (
    "You are a support agent of Parcelo, a parcel locker network. "
    "Reply in the language of the customer, at most six sentences."
)

client = OpenAI(base_url="http://gpu-node-03:8000/v1", api_key="EMPTY", timeout=60)


def draft(ticket: dict) -> str:
    response = client.chat.completions.create(
        model=MODEL,
        messages=[
            {"role": "system", "content": SYSTEM_PROMPT},
            {"role": "user", "content": ticket["subject"] + "\n\n" + ticket["body"]},
        ],
        temperature=0.2,
        max_tokens=400,
    )
    return response.choices[0].message.content.strip()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("inbox", type=Path, help="folder of ticket json files")
    parser.add_argument("--out", type=Path, default=Path("drafts"))
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    args.out.mkdir(exist_ok=True)
    for path in sorted(args.inbox.glob("*.json")):
        ticket = json.loads(path.read_text(encoding="utf-8"))
        started = time.perf_counter()
        text = draft(ticket)
        (args.out / (path.stem + ".txt")).write_text(text, encoding="utf-8")
        log.info("%s drafted in %.1fs", path.stem, time.perf_counter() - started)


if __name__ == "__main__":
    main()
