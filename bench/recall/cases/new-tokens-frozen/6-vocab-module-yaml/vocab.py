import torch


def read_terms(path):
    with open(path, encoding="utf-8") as fh:
        return [line.strip() for line in fh if line.strip()]


def extend(model, tokenizer, terms):
    """Add domain terms; start every new row at the mean of its old pieces."""
    pieces = {t: tokenizer(t, add_special_tokens=False)["input_ids"] for t in terms}
    tokenizer.add_tokens(terms)
    model.resize_token_embeddings(len(tokenizer))
    emb = model.get_input_embeddings().weight
    with torch.no_grad():
        for term, ids in pieces.items():
            emb[tokenizer.convert_tokens_to_ids(term)] = emb[ids].mean(0)
    return len(terms)
