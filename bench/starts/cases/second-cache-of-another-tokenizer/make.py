from pathlib import Path

from bench.starts.material import chats, instructions, link_tokenizer
from tests.parts.lay_out import tokenizer_folder


def make(folder: Path) -> None:
    """Token ids of Llama 3's tokenizer as a cache of datasets, beside the folder of Qwen2.5."""
    from datasets import Dataset
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(tokenizer_folder("llama3.1-instruct")))

    def ids(turns: list[dict[str, str]], *, prompt: bool) -> list[int]:
        text = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=prompt)
        return tokenizer(text, add_special_tokens=False).input_ids

    rows = []
    for chat in chats(instructions()[:600]):
        whole = ids(chat["messages"], prompt=False)[:1024]
        head = len(ids(chat["messages"][:1], prompt=True))
        labels = [-100] * head + whole[head:]
        rows.append(
            {
                "input_ids": whole,
                "attention_mask": [1] * len(whole),
                "labels": labels[: len(whole)],
            }
        )
    Dataset.from_list(rows).save_to_disk(str(folder / "cache/train_1024"))
    link_tokenizer("qwen2.5-instruct", folder / "models/Qwen2.5-0.5B-Instruct")
