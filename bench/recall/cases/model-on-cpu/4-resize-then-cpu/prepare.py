import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

NEW = ["<case>", "</case>", "<verdict>", "</verdict>"]


def load(name, device="cuda"):
    """Tokenizer and model with the extra markers; new rows start at the mean of the old ones."""
    tokenizer = AutoTokenizer.from_pretrained(name)
    model = AutoModelForCausalLM.from_pretrained(name, dtype=torch.float32).to(device)
    before = len(tokenizer)
    tokenizer.add_tokens(NEW)
    # the resize needs room for two copies of the table
    model = model.to("cpu")
    if len(tokenizer) > model.get_input_embeddings().num_embeddings:
        model.resize_token_embeddings(len(tokenizer))
    with torch.no_grad():
        table = model.get_input_embeddings().weight
        table[before : len(tokenizer)] = table[:before].mean(0)
    return tokenizer, model
