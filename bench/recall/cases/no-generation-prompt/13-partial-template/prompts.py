from functools import partial

from transformers import AutoTokenizer


def tokenizer_and_template(run):
    tok = AutoTokenizer.from_pretrained(run, padding_side="left")
    to_text = partial(tok.apply_chat_template, tokenize=False, add_generation_prompt=True)
    return tok, to_text
