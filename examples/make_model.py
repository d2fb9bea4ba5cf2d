"""Make a tiny chat model in the folder `model`, so that an example runs in seconds without a download.

It has two layers, random weights and the tokenizer of truetune's demo (ChatML, a pad token of its
own). The expected outputs of the examples were made with it. Run it in the folder of an example:
`python ../make_model.py`. For a real fine-tune, download a model into the same folder instead:
`hf download Qwen/Qwen2.5-0.5B-Instruct --local-dir model`.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import torch
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from truetune.demo import TOKENIZER


def make_model(folder: Path) -> None:
    """Write tokenizer, config and weights into a folder.

    Args:
        folder: Where to. Files of the same names are replaced.
    """
    shutil.copytree(TOKENIZER, folder, dirs_exist_ok=True)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=2048,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    LlamaForCausalLM(config).save_pretrained(folder)


if __name__ == "__main__":
    make_model(Path("model"))
