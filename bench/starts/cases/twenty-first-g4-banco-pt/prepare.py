import argparse
import json

import pandas as pd


def read(path):
    frame = pd.read_csv(path, encoding="ISO-8859-1")
    frame = frame.dropna(subset=["pergunta", "resposta"]).drop_duplicates(["pergunta", "resposta"])
    return frame


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--source", default="export/faq_export.csv")
    parser.add_argument("--out", default="data/train.jsonl")
    args = parser.parse_args()
    frame = read(args.source)
    with open(args.out, "w", encoding="utf-8") as sink:
        for row in frame.itertuples():
            record = {
                "messages": [
                    {"role": "user", "content": row.pergunta.strip()},
                    {"role": "assistant", "content": row.resposta.strip()},
                ]
            }
            sink.write(json.dumps(record, ensure_ascii=False) + "\n")
    print(f"{len(frame)} rows -> {args.out}")


if __name__ == "__main__":
    main()
