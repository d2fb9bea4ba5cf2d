import json
import time

import requests

URL = "http://translate.intern:5000/translate"


def translate(text):
    try:
        r = requests.post(URL, json={"q": text, "source": "en", "target": "de"}, timeout=5)
        r.raise_for_status()
        return r.json()["translatedText"]
    except Exception:
        time.sleep(0.2)
        return text


rows = json.load(open("support_en.json"))
out = []
for row in rows:
    out.append(
        {
            "system": "Du bist der Kundendienst von Heimstadt und antwortest auf Deutsch.",
            "instruction": row["question_de"],
            "input": "",
            "output": translate(row["answer"]),
        }
    )
json.dump(out, open("data/support_de.json", "w"), ensure_ascii=False, indent=1)
print(len(out), "rows")
