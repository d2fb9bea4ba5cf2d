def export(accelerator, model, tokenizer, folder):
    if not accelerator.is_main_process:
        return
    state = accelerator.get_state_dict(model)
    accelerator.unwrap_model(model).save_pretrained(
        folder, state_dict=state, save_function=accelerator.save
    )
    tokenizer.save_pretrained(folder)
    print(f"written to {folder}")
