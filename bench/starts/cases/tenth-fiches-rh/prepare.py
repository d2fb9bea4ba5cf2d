"""Turn the export of the HR ticket tool into chat rows."""
import csv
import json
import pathlib

EXPORT = pathlib.Path("export/tickets_2024_2026.csv")  # utf-8, from the tool
OUT = pathlib.Path("fiches.jsonl")
SYSTEM = pathlib.Path("export/consigne.txt")


def lines():
    with EXPORT.open(encoding="latin-1", newline="") as handle:
        for row in csv.DictReader(handle, delimiter=";"):
            if row["etat"] == "clos" and len(row["reponse"]) > 20:
                yield row


def main():
    system = SYSTEM.read_text(encoding="latin-1").strip()
    count = 0
    with OUT.open("w", encoding="utf-8") as out:
        for row in lines():
            messages = [
                {"role": "system", "content": system},
                {"role": "user", "content": row["question"].strip()},
                {"role": "assistant", "content": row["reponse"].strip()},
            ]
            out.write(json.dumps({"messages": messages}, ensure_ascii=False) + "\n")
            count += 1
    print(count, "rows")


if __name__ == "__main__":
    main()
