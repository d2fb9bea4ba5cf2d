import lightning as L
import torch
import torch.nn.functional as F
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM


class PreferenceModule(L.LightningModule):
    def __init__(self, name, beta=0.1, lr=5e-6):
        super().__init__()
        self.save_hyperparameters()
        net = AutoModelForCausalLM.from_pretrained(name, dtype=torch.bfloat16)
        self.net = get_peft_model(
            net, LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM")
        )
        self.net.train()

    def logps(self, batch):
        logits = self.net(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
        y = batch["labels"][:, 1:]
        keep = y != -100
        lp = logits[:, :-1].float().log_softmax(-1).gather(-1, y.masked_fill(~keep, 0).unsqueeze(-1)).squeeze(-1)
        return (lp * keep).sum(-1)

    def training_step(self, batch, _):
        with torch.no_grad():
            ref = self.logps(batch)
        now = self.logps(batch)
        win, lose = (now - ref).chunk(2)
        margin = self.hparams.beta * (win - lose)
        loss = -F.logsigmoid(margin).mean()
        self.log_dict({"loss": loss, "margin": margin.mean()}, prog_bar=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW((p for p in self.parameters() if p.requires_grad), lr=self.hparams.lr)
