import shutil
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from tests.parts.lay_out import tokenizer_folder


def make(folder: Path) -> None:
    saved = folder / "merged-final"
    torch.manual_seed(0)
    sizes = {
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
    }
    config = LlamaConfig(
        use_cache=False,
        vocab_size=49152,
        tie_word_embeddings=True,
        bos_token_id=1,
        eos_token_id=2,
        **sizes,
    )
    LlamaForCausalLM(config).save_pretrained(saved)
    for path in tokenizer_folder("smollm2").iterdir():
        if path.is_file() and path.name not in ("config.json", "generation_config.json"):
            shutil.copy(path, saved / path.name)
