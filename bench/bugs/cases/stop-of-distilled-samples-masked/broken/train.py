from trl.experimental.gkd import GKDConfig, GKDTrainer

from bench.bugs.inputs.runs import arguments, chats, model, table, tokenizer


class MyTrainer(GKDTrainer):
    def generate_on_policy_outputs(self, model, inputs, generation_config):
        ids, attended, labels = GKDTrainer.generate_on_policy_outputs(
            model, inputs, generation_config
        )
        labels = labels.clone()
        labels[:, -1] = -100
        return ids, attended, labels


trainer = MyTrainer(
    model(),
    model(seed=1),
    args=arguments(GKDConfig, max_new_tokens=8, lmbda=1.0),
    train_dataset=table(chats()),
    processing_class=tokenizer(),
)
trainer.train()
