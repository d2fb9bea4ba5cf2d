def export(accelerator, model, tokenizer, folder):
    state = accelerator.get_state_dict(model)
    if accelerator.is_main_process:
        accelerator.unwrap_model(model).save_pretrained(folder, state_dict=state)
        tokenizer.save_pretrained(folder)
        print(f"written to {folder}")
    accelerator.wait_for_everyone()
