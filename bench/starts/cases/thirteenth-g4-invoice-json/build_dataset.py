import csv
import json
import random
from collections import defaultdict

SYSTEM = (
    "You extract fields from invoice text. Answer with one JSON object with the keys "
    "vendor, invoice_no, date, currency, total, vat_id, paid. Use null where a field is missing."
)


def load_labels(path):
    labels = defaultdict(dict)
    with open(path, newline="", encoding="utf-8") as f:
        for r in csv.DictReader(f):
            labels[r["doc_id"]] = {
                "vendor": r["vendor"],
                "invoice_no": r["invoice_no"],
                "date": r["date"],
                "currency": r["currency"],
                "total": float(r["total"]) if r["total"] else None,
                "vat_id": r["vat_id"] or None,
                "paid": r["paid"] == "1",
            }
    return labels


def load_texts(path):
    with open(path, encoding="utf-8") as f:
        return {d["doc_id"]: d["ocr"] for d in map(json.loads, f)}


def main():
    labels = load_labels("raw/labels.csv")
    texts = load_texts("raw/ocr.jsonl")
    rows = []
    for doc_id, fields in labels.items():
        if doc_id not in texts:
            continue
        rows.append(
            {
                "messages": [
                    {"role": "system", "content": SYSTEM},
                    {"role": "user", "content": texts[doc_id]},
                    {"role": "assistant", "content": str(fields)},
                ]
            }
        )
    random.Random(3).shuffle(rows)
    with open("train.jsonl", "w", encoding="utf-8") as f:
        for r in rows:
            f.write(json.dumps(r, ensure_ascii=False) + "\n")
    print(len(rows), "rows")


if __name__ == "__main__":
    main()
