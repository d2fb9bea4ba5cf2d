from trl.experimental.gkd import GKDConfig, GKDTrainer

from bench.bugs.inputs.runs import arguments, chats, model, table, tokenizer

student = model()
trainer = GKDTrainer(
    student,
    model(seed=1),
    args=arguments(GKDConfig, max_new_tokens=8),
    train_dataset=table(chats()),
    processing_class=tokenizer(),
)
trainer.train()
