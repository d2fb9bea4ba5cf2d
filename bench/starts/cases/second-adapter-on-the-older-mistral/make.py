import json
import random
from pathlib import Path

from bench.starts.material import instructions, link_tokenizer, write_adapter, write_lines
from tests.parts.lay_out import tokenizer_folder


def make(folder: Path) -> None:
    """An adapter of Mistral 7B v0.3 with its tokenizer, and answers whose ids meant other words."""
    checkpoint = folder / "outputs/checkpoint-600"
    link_tokenizer("mistral-7b-v0.3", checkpoint)
    sizes = {"self_attn.q_proj": (4096, 4096), "self_attn.v_proj": (4096, 1024)}
    write_adapter(checkpoint / "adapter_model.safetensors", sizes, 32, 8, dtype="bfloat16")
    file = tokenizer_folder("mistral-7b-v0.3") / "tokenizer.json"
    vocabulary = json.loads(file.read_text("utf-8"))["model"]["vocab"]
    words = [word.replace("▁", " ") for word in list(vocabulary)[2000:20000]]
    drawn = random.Random(7)
    answers = (
        {
            "prompt": row["instruction"],
            "prediction": "".join(drawn.choice(words) for _ in range(60)),
            "reference": row["output"],
        }
        for row in instructions()[800:825]
    )
    write_lines(folder / "answers.jsonl", answers)
