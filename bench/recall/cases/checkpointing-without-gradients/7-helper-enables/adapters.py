from peft import LoraConfig, get_peft_model


def adapter(model, rank=16):
    config = LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear", task_type="CAUSAL_LM")
    return get_peft_model(model, config)


def ready_for_checkpointing(model):
    model.enable_input_require_grads()
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": True})
    return model


def trained(model):
    return [p for p in model.parameters() if p.requires_grad]
