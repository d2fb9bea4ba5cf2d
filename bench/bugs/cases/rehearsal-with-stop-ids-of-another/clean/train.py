from trl import SFTConfig, SFTTrainer

from bench.bugs.inputs.runs import arguments, completions, model, table, tokenizer

tok = tokenizer()
llama = model()
trainer = SFTTrainer(
    llama, args=arguments(SFTConfig), train_dataset=table(completions()), processing_class=tok
)
trainer.train()
