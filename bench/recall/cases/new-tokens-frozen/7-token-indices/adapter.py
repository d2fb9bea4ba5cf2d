from peft import LoraConfig


def adapter_for(tokenizer, new_tokens, rank=16):
    options = dict(r=rank, lora_alpha=2 * rank, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM")
    ids = tokenizer.convert_tokens_to_ids(new_tokens)
    if ids:
        options["trainable_token_indices"] = {"embed_tokens": ids}
    return LoraConfig(**options)
