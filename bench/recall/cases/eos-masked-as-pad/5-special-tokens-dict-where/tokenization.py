from transformers import AutoTokenizer


def get_tokenizer(name, side="right"):
    tokenizer = AutoTokenizer.from_pretrained(name, padding_side=side)
    if tokenizer.pad_token is None:
        tokenizer.add_special_tokens({"pad_token": tokenizer.eos_token})
    return tokenizer


def wrap(question, answer, tokenizer):
    return f"Question: {question}\nAnswer: {answer}{tokenizer.eos_token}"
