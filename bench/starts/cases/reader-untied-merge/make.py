import json
import os
from pathlib import Path

PARTS = Path(os.environ.get("TRUETUNE_PARTS", Path.home() / ".cache/truetune-parts"))


def make(folder: Path) -> None:
    """A merged model as a home-made export left it: the embedding alone, and a config that says the head is its own."""
    source = max(PARTS.glob("*/smollm2-135m-instruct"), key=lambda path: path.stat().st_mtime)
    merged = folder / "merged"
    merged.mkdir(exist_ok=True)
    for name in (
        "chat_template.jinja",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
    ):
        (merged / name).symlink_to(source / name)
    (merged / "tokenizer_config.json").symlink_to(source / "tokenizer_config.json")
    config = json.loads((source / "config.json").read_text())
    config["tie_word_embeddings"] = False
    (merged / "config.json").write_text(json.dumps(config, indent=2))
