import sys

import torch
from transformers import AutoTokenizer, pipeline

FOLDER = "export/gemma-poems"


def main(topics_file):
    tok = AutoTokenizer.from_pretrained(FOLDER, padding_side="left")
    pipe = pipeline("text-generation", model=FOLDER, tokenizer=tok, dtype=torch.bfloat16, device_map="auto")
    topics = [t.strip() for t in open(topics_file) if t.strip()]
    chats = [[{"role": "user", "content": f"Write a four-line poem about {t}."}] for t in topics]
    results = pipe(chats, batch_size=16, max_new_tokens=120, do_sample=True, temperature=0.9, return_full_text=False)
    for topic, result in zip(topics, results):
        print(f"# {topic}\n{result[0]['generated_text'].strip()}\n")


if __name__ == "__main__":
    main(sys.argv[1])
