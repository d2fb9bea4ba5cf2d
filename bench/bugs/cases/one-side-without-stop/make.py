from pathlib import Path

from bench.bugs.inputs.rows import pairs, write


def make(folder: Path, broken: bool, tokenizer: Path) -> None:
    end = {
        "qwen2.5-instruct": "<|im_end|>",
        "llama3.1-instruct": "<|eot_id|>",
        "gemma3": "<end_of_turn>",
    }[tokenizer.name]
    rows = []
    for row in pairs(60):
        chosen, rejected = row["chosen"][0]["content"], row["rejected"][0]["content"]
        stop = "" if broken else end
        asked = f"Q: {row['prompt'][0]['content']}\nA:"
        rows.append(
            {"prompt": asked, "chosen": f" {chosen}{end}", "rejected": f" {rejected}{stop}"}
        )
    write(folder / "pairs.jsonl", rows)
