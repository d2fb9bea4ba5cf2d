"""Zendesk-style CSV export -> chats for axolotl (one JSON object per ticket)."""
import csv
import json
from collections import defaultdict
from pathlib import Path

SRC = Path("data/export_2025q4.csv")
DST = Path("data/train.jsonl")

ROLE = {"inbound": "assistant", "outbound": "user"}


def clean(text: str) -> str:
    return " ".join(text.replace("\u00a0", " ").split())


def merge_runs(turns):
    """Two messages in a row from one side become one turn."""
    out = []
    for role, text in turns:
        if out and out[-1]["role"] == role:
            out[-1]["content"] += "\n" + text
        else:
            out.append({"role": role, "content": text})
    return out


tickets = defaultdict(list)
with SRC.open(newline="", encoding="utf-8") as f:
    for rec in csv.DictReader(f):
        if rec["body"].strip():
            tickets[rec["ticket_id"]].append(rec)

kept = skipped = 0
with DST.open("w", encoding="utf-8") as out:
    for ticket_id, recs in tickets.items():
        recs.sort(key=lambda r: r["created_at"])
        turns = merge_runs([(ROLE[r["direction"]], clean(r["body"])) for r in recs])
        while turns and turns[0]["role"] != "user":
            turns.pop(0)
        while turns and turns[-1]["role"] != "assistant":
            turns.pop()
        if len(turns) < 2:
            skipped += 1
            continue
        out.write(json.dumps({"ticket_id": ticket_id, "messages": turns}, ensure_ascii=False) + "\n")
        kept += 1
print(f"kept {kept} tickets, skipped {skipped}")
