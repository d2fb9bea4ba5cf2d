TAGS = ["<tool>", "</tool>", "<result>", "</result>"]


def extend(tokenizer, model):
    """Register our tags; returns the options that LoraConfig needs for them."""
    tokenizer.add_tokens(TAGS, special_tokens=True)
    if len(tokenizer) > model.get_input_embeddings().weight.shape[0]:
        model.resize_token_embeddings(len(tokenizer))
    ids = tokenizer.convert_tokens_to_ids(TAGS)
    return {"trainable_token_indices": {"embed_tokens": ids}}
