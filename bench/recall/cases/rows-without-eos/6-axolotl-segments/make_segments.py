"""CSV of mails and replies -> segments file for template-free training."""
import argparse
import csv
import json


def segments(row):
    mail = row["mail"].replace("\r\n", "\n").strip()
    reply = row["reply"].replace("\r\n", "\n").strip()
    return [
        {"label": False, "text": f"<s>[MAIL]\n{mail}\n[REPLY]\n"},
        {"label": True, "text": reply},
    ]


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("csv_file")
    ap.add_argument("out_file")
    ap.add_argument("--min_words", type=int, default=5)
    a = ap.parse_args()

    seen, written = set(), 0
    with open(a.csv_file, newline="", encoding="utf-8") as src, open(a.out_file, "w", encoding="utf-8") as dst:
        for row in csv.DictReader(src):
            key = (row["mail"].strip(), row["reply"].strip())
            if key in seen or len(key[1].split()) < a.min_words:
                continue
            seen.add(key)
            dst.write(json.dumps({"segments": segments(row)}, ensure_ascii=False) + "\n")
            written += 1
    print(f"{written} rows in {a.out_file}")


if __name__ == "__main__":
    main()
