"""Perplexities that are averaged elsewhere than in a plain loop (SRC028)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checks.source.table import codes

LIGHTNING = """
import lightning as L
class M(L.LightningModule):
    def {0}(self, batch, _):
        loss = self.net(**batch).loss
        {1}
"""
ENGINE = """
import math
import statistics
def score(answer):
    values = []
    for i, choice in enumerate(answer.prompt_logprobs):
        values.append(choice[i].logprob)
    return {0}
{1}
"""
GATHERED = """
import math
collate = DataCollatorForSeq2Seq(tok)
accelerator = Accelerator()
losses = []
for batch in loader:
    with torch.no_grad():
        out = model(**batch)
    {0}
losses = torch.cat(losses)
print(math.exp(losses{1}.mean().item()))
"""
ROWS = "losses.append(accelerator.gather_for_metrics(out.loss.repeat(8)))"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (LIGHTNING.format("validation_step", "self.log('ppl', torch.exp(loss))"), "w"),
        (LIGHTNING.format("test_step", "self.log_dict({'ppl': loss.exp(), 'loss': loss})"), "w"),
        (LIGHTNING.format("validation_step", "self.log('loss', loss)"), ""),
        (LIGHTNING.format("training_step", "self.log('ppl', loss.exp())"), ""),
        (LIGHTNING.format("validation_step", "self.log('p', loss.exp(), on_epoch=False)"), ""),
        (
            ENGINE.format(
                "math.exp(-sum(values) / len(values))",
                "print(statistics.mean([score(a) for a in answers]))",
            ),
            "w",
        ),
        (
            ENGINE.format(
                "math.exp(-statistics.mean(values))",
                "all = [score(a) for a in answers]\nprint(sum(all) / len(all))",
            ),
            "w",
        ),
        (
            ENGINE.format(
                "math.exp(-sum(values) / len(values))",
                "print(statistics.median([score(a) for a in answers]))",
            ),
            "",
        ),
        (
            ENGINE.format("sum(values), len(values)", "print(math.exp(-total / tokens))"),
            "",
        ),
        (GATHERED.format(ROWS, ".float()"), "i"),
        (GATHERED.format(ROWS, ""), "i"),
        (GATHERED.format("losses.append(torch.ones(8))", ""), ""),
        (GATHERED.format("losses.append(out.loss * batch['n'])", ""), ""),
    ],
)
def test_means_of_perplexities(text: str, found: str, tmp_path: Path) -> None:
    assert codes(text, tmp_path, "SRC028") == [f"SRC028{letter}" for letter in found]
