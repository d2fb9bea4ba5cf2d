import json
import os
import shutil
from pathlib import Path

PARTS = Path(os.environ.get("TRUETUNE_PARTS", Path.home() / ".cache/truetune-parts"))
DISHES = [
    "lentil soup",
    "apple tart",
    "fried rice",
    "bean stew",
    "flat bread",
    "plum jam",
    "potato salad",
    "onion pie",
]


def make(folder: Path) -> None:
    """A tiny random Llama with SmolLM2's tokenizer, and 32 recipes."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    source = max(PARTS.glob("*/smollm2-135m-instruct"), key=lambda path: path.stat().st_mtime)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=49152,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        tie_word_embeddings=True,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=2,
    )
    LlamaForCausalLM(config).save_pretrained(folder / "tiny-base")
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(source / name, folder / "tiny-base" / name)
    with (folder / "recipes.jsonl").open("w") as out:
        for number in range(32):
            dish = f"{DISHES[number % 8]} for {number // 8 + 2}"
            recipe = (
                f"Take {number + 3} spoons of oil, warm it, and stir in the rest of the {dish} for"
                f" {number} minutes."
            )
            out.write(json.dumps({"dish": dish, "recipe": recipe}) + "\n")
