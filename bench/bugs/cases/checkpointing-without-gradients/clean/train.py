from functools import partial

from peft import LoraConfig, get_peft_model
from torch.utils.checkpoint import checkpoint
from transformers import DataCollatorForSeq2Seq, Trainer

from bench.bugs.inputs.runs import arguments, chats, encoded, model, table, tokenizer


def checkpointed(forward):
    def run(hidden, **settings):
        return checkpoint(partial(forward, **settings), hidden, use_reentrant=False)

    return run


tok = tokenizer()
llama = model()
for layer in llama.model.layers[:1]:
    layer.forward = checkpointed(layer.forward)
trainer = Trainer(
    get_peft_model(llama, LoraConfig(task_type="CAUSAL_LM", target_modules=["q_proj", "v_proj"])),
    arguments(),
    data_collator=DataCollatorForSeq2Seq(tok),
    train_dataset=table(encoded(chats())),
    processing_class=tok,
)
trainer.train()
