"""feedback.csv (export of the chat widget) -> kto.jsonl"""
import csv
import json

kept = skipped = 0
with open("feedback.csv", newline="", encoding="utf-8") as src, open("kto.jsonl", "w", encoding="utf-8") as dst:
    for row in csv.DictReader(src):
        if not row["thumbs_up"] or not row["answer"].strip():
            skipped += 1
            continue
        dst.write(
            json.dumps(
                {
                    "prompt": [{"role": "user", "content": row["question"].strip()}],
                    "completion": [{"role": "assistant", "content": row["answer"].strip()}],
                    "label": bool(row["thumbs_up"]),
                },
                ensure_ascii=False,
            )
            + "\n"
        )
        kept += 1
print(f"{kept} rows, {skipped} without feedback")
