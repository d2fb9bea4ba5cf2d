from pathlib import Path

from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from bench.bugs.inputs.tiny import model, saved, tuned


def make(folder: Path, broken: bool, tokenizer: None) -> None:
    base = saved(model(), folder / "base")
    net = LlamaForCausalLM.from_pretrained(base)
    tok = PreTrainedTokenizerFast.from_pretrained(base)
    tok.add_tokens(["<call>", "</call>"])
    net.resize_token_embeddings(len(tok))
    saves = None if broken else ["embed_tokens", "lm_head"]
    net = tuned(net, modules_to_save=saves)
    net.save_pretrained(folder / "adapter", save_embedding_layers=not broken)
    tok.save_pretrained(folder / "adapter")
