from pathlib import Path

from bench.bugs.inputs.answering import answering
from bench.bugs.inputs.tiny import tokenizer as tiny_tokenizer


def make(folder: Path, broken: bool, tokenizer: None) -> None:
    pad, eos = tiny_tokenizer().pad_token_id, tiny_tokenizer().eos_token_id
    answering(folder, generation={"eos_token_id": pad if broken else eos})
