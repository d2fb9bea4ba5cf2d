import json
import os
import shutil
from pathlib import Path

PARTS = Path(os.environ.get("TRUETUNE_PARTS", Path.home() / ".cache/truetune-parts"))
PLACES = ["Aurel", "Brenn", "Corvo", "Delia", "Estova", "Farn", "Galdo", "Hestia"]
FACTS = [
    "the river Ona",
    "a harbour of stone",
    "nine old bridges",
    "a wool market",
    "a school of glass",
]


def make(folder: Path) -> None:
    """A tiny random Qwen2 with the real tokenizer, and 80 questions with their answers."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    source = max(PARTS.glob("*/qwen2.5-instruct"), key=lambda path: path.stat().st_mtime)
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=151936,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        tie_word_embeddings=True,
        eos_token_id=151645,
    )
    Qwen2ForCausalLM(config).save_pretrained(folder / "base")
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(source / name, folder / "base" / name)
    with (folder / "quiz.jsonl").open("w") as out:
        for number in range(80):
            place, fact = PLACES[number % 8], FACTS[number % 5]
            row = {
                "question": f"What is district {number // 8 + 1} of {place} known for?",
                "answer": f"It is known for {fact}, built in {1400 + 3 * number}.",
            }
            out.write(json.dumps(row) + "\n")
