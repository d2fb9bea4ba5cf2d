import json
import os
import shutil
from pathlib import Path

PARTS = Path(os.environ.get("TRUETUNE_PARTS", Path.home() / ".cache/truetune-parts"))
TOWNS = ["Ulm", "Graz", "Lugano", "Ghent", "Turku", "Porto"]


def make(folder: Path) -> None:
    """A tiny random Gemma 3 with the real tokenizer, to try the loop on a laptop, and 32 articles."""
    import torch
    from transformers import Gemma3ForCausalLM, Gemma3TextConfig

    source = max(PARTS.glob("*/gemma3"), key=lambda path: path.stat().st_mtime)
    torch.manual_seed(0)
    config = Gemma3TextConfig(
        vocab_size=262208,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
    )
    Gemma3ForCausalLM(config).save_pretrained(folder / "gemma-tiny")
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(source / name, folder / "gemma-tiny" / name)
    with (folder / "summaries.jsonl").open("w") as out:
        for number in range(32):
            town = TOWNS[number % 6]
            article = (
                f"The council of {town} met on day {number + 1}. It voted to mend {number + 3}"
                " roads and a bridge."
            )
            row = {"article": article, "summary": f"{town} mends {number + 3} roads."}
            out.write(json.dumps(row) + "\n")
