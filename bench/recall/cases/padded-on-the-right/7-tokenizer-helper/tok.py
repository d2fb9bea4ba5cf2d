from transformers import AutoTokenizer

PAD = "<|finetune_right_pad_id|>"


def load_tokenizer(name, for_generation=True):
    tok = AutoTokenizer.from_pretrained(name)
    if tok.pad_token is None:
        tok.pad_token = PAD
    tok.padding_side = "left" if for_generation else "right"
    return tok


def render(tok, question):
    return tok.apply_chat_template(
        [{"role": "user", "content": question}], tokenize=False, add_generation_prompt=True
    )
