def for_training(model):
    model.config.use_cache = False
    model.generation_config.use_cache = False
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    return model.train()


def for_writing(model):
    model.gradient_checkpointing_disable()
    model.config.use_cache = True
    model.generation_config.use_cache = True
    return model.eval()
