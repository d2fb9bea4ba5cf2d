NAMES = {
    "llama": ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
    "gpt_neox": ["query_key_value", "dense", "dense_h_to_4h", "dense_4h_to_h"],
    "gpt2": ["c_attn", "c_proj", "c_fc"],
}


def targets(config):
    try:
        return NAMES[config.model_type]
    except KeyError:
        raise SystemExit(f"no adapter targets known for {config.model_type}")
