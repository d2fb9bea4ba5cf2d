from trl import SFTConfig, SFTTrainer

from bench.bugs.inputs.runs import arguments, completions, model, table, tokenizer

tok = tokenizer()


def render(row):
    prompt = tok.apply_chat_template(row["prompt"], add_generation_prompt=True, tokenize=False)
    whole = tok.apply_chat_template(row["prompt"] + row["completion"], tokenize=False)
    return {"prompt": prompt, "completion": whole.removeprefix(prompt)}


trainer = SFTTrainer(
    model(),
    args=arguments(SFTConfig),
    train_dataset=table([render(row) for row in completions()]),
    processing_class=tok,
)
trainer.train()
