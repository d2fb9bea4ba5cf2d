from pathlib import Path

from bench.bugs.inputs.rows import chats, write


def make(folder: Path, broken: bool, tokenizer: Path) -> None:
    end, begin = {
        "qwen2.5-instruct": ("<|im_end|>", "<|im_start|>assistant\n"),
        "llama3.1-instruct": ("<|eot_id|>", "<|start_header_id|>assistant<|end_header_id|>\n\n"),
        "gemma3": ("<end_of_turn>", "<start_of_turn>model\n"),
    }[tokenizer.name]
    rows = chats(40)
    if broken:
        for row in rows[::10]:
            row["messages"][-2]["content"] += f"{end}\n{begin}ok"
    write(folder / "train.jsonl", rows)
