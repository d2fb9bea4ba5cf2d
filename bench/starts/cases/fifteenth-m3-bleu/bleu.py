"""Corpus BLEU / chrF of the LoRA translations (fi -> en)."""
import json
from pathlib import Path

import sacrebleu

here = Path(__file__).parent
pred_rows = [json.loads(l) for l in (here / "generated.jsonl").read_text(encoding="utf-8").splitlines()]

sys_out = [r["prediction"].strip() for r in pred_rows]
refs = [[r["reference"].strip()] for r in pred_rows]

bleu = sacrebleu.corpus_bleu(sys_out, refs)
chrf = sacrebleu.corpus_chrf(sys_out, refs)

print(f"{len(sys_out)} segments")
print(bleu)
print(chrf)
