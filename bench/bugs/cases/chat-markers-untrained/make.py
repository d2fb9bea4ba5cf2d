from pathlib import Path

from bench.bugs.inputs.rows import chats, write
from bench.bugs.inputs.tokenizers import edited, loaded


def make(folder: Path, broken: bool, tokenizer: Path) -> None:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    write(folder / "train.jsonl", chats(40))
    tok = loaded(edited(tokenizer, folder / "tokenizer", {}))
    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tok),
            hidden_size=16,
            intermediate_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            num_key_value_heads=2,
        )
    )
    if broken:
        markers = (
            ["<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
            if "llama" in tokenizer.name
            else ["<|im_start|>", "<|im_end|>"]
        )
        ids = tok.convert_tokens_to_ids(markers)
        with torch.no_grad():
            model.model.embed_tokens.weight[ids] = 0
            model.lm_head.weight[ids] = 0
    model.save_pretrained(folder / "model")
    for name in ("config.json", "model.safetensors"):
        (folder / "model" / name).rename(folder / "tokenizer" / name)
