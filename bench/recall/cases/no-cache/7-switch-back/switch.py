def ready_for_inference(model, tok):
    """Undo what training needs and sampling does not."""
    model.gradient_checkpointing_disable()
    model.config.use_cache = True
    model.generation_config.use_cache = True
    model.eval()
    tok.padding_side = "left"
    return model
