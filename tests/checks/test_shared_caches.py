"""Loops over checkpoints that share one cache or one kept file, and loops that do not."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.lint import lint

RUN = "lm_eval --model hf --tasks gsm8k --model_args pretrained=org/base,peft="
HEAD = "for step in 200 400; do\n"
MERGE = "python merge.py --adapter out/checkpoint-$step --out merged"


def findings(folder: Path, text: str, name: str = "run.sh") -> list[str]:
    """What the rule says of a script."""
    (folder / name).write_text(text, encoding="utf-8")
    return [one.message for one in lint([folder / name], select=["CMD090"]).findings]


@pytest.mark.parametrize(
    "text",
    [
        f"{HEAD}  {RUN}out/checkpoint-$step --use_cache cache/all\ndone\n",
        f"CACHE=/s/$USER/c\nfor s in 1 2; do {RUN}out/$s \\\n --use_cache=$CACHE; done\n",
        f"for c in out/checkpoint-*/; do\n  P=${{c%/}}\n  {RUN}$P -c db/one --batch_size 8\ndone\n",
        f"ls -d out/* | while read -r ckpt; do\n  {RUN}$ckpt --use_cache db\ndone\n",
        f"for ((s=200; s<=800; s+=200)); do\n  {RUN}out/checkpoint-${{s}} --use_cache db\ndone\n",
        f"s=200\nwhile [ $s -le 800 ]; do\n  {RUN}o/$s --use_cache db\n  s=$((s+200))\ndone\n",
        f"for t in gsm8k ifeval; do\nfor s in 1 2; do\n  {RUN}o/$s --use_cache db-$t\ndone\ndone\n",
        f"#SBATCH --array=1-4\n{RUN}out/checkpoint-${{SLURM_ARRAY_TASK_ID}}00 --use_cache db\n",
        f"#SBATCH --array=1-4\nS=$((SLURM_ARRAY_TASK_ID * 100))\n{RUN}out/$S --use_cache db\n",
        "for r in main v2; do python -m lm_eval --tasks mmlu --model vllm --use_cache db \\\n"
        "  --model_args pretrained=org/base,revision=$r; done\n",
        f"{RUN}out/a --use_cache db\n{RUN}out/b --use_cache db\n",
        f"C=$SCRATCH/db\nB=org/b\n{RUN}out/a --use_cache $C\n{RUN}$B --use_cache $C\n",
        f"{HEAD}if [ ! -d merged ]; then\n  {MERGE}\nfi\npython eval.py --model merged\ndone\n",
        f"{HEAD}  [ -d merged ] || {MERGE}\n  python eval.py --model merged --out $step.json\ndone\n",
        f"{HEAD}  [[ ! -e merged/config.json ]] && {MERGE}\ndone\n",
        f"{HEAD}  test -f res.json && continue\n"
        "  python eval.py --ckpt out/$step --out res.json\ndone\n",
        f"{HEAD}  if [ -f res.json ]; then\n    continue\n  fi\n"
        "  python eval.py --ckpt out/$step --out res.json\ndone\n",
    ],
)
def test_one_path_for_all_is_found(tmp_path: Path, text: str) -> None:
    assert len(findings(tmp_path, text)) == 1


@pytest.mark.parametrize(
    "text",
    [
        f"{HEAD}  {RUN}out/checkpoint-$step --use_cache cache/$step\ndone\n",
        f"{HEAD}  C=cache/$step\n  {RUN}out/checkpoint-$step --use_cache $C\ndone\n",
        f"for c in out/*; do\n  N=$(basename $c)\n  {RUN}$c --use_cache db-$N\ndone\n",
        f"for c in out/*; do\n  {RUN}$c --use_cache db-$(basename $c)\ndone\n",
        f"for r in a b; do for c in $r/*; do\n  {RUN}$c --use_cache $c/db\ndone; done\n",
        f"for t in gsm8k mmlu; do\n  {RUN}out/final --num_fewshot $t --use_cache db\ndone\n",
        f"{HEAD}  {RUN}out/checkpoint-$step --cache_requests true\ndone\n",
        f"{HEAD}  {RUN}out/checkpoint-$step --use_cache db\n  rm -f db_rank*.db\ndone\n",
        f"{HEAD}  rm -rf cache/*\n  {RUN}out/checkpoint-$step --use_cache cache/db\ndone\n",
        f"{HEAD}  cd out/checkpoint-$step\n  {RUN}. --use_cache db\n  cd -\ndone\n",
        f"i=0\n{HEAD}  i=$((i+1))\n  {RUN}out/$step --use_cache db$i\ndone\n",
        f"{HEAD}  {RUN}out/$step --use_cache $(mktemp -d)/db\ndone\n",
        f"{HEAD}  if [ $step = 200 ]; then C=a; else C=b; fi\n  {RUN}o/$step --use_cache $C\ndone\n",
        f"#SBATCH --array=1-4\n{RUN}out/$SLURM_ARRAY_TASK_ID --use_cache db$SLURM_ARRAY_TASK_ID\n",
        f"#SBATCH --array=1-4\n{RUN}out/$SLURM_ARRAY_TASK_ID --use_cache db$SLURM_JOB_ID\n",
        f"{RUN}out/$1 --use_cache db\n",
        f"C=a\n{RUN}out/a --use_cache db-$C\nC=b\n{RUN}out/b --use_cache db-$C\n",
        f"{RUN}out/a --use_cache db-a\n{RUN}out/b --use_cache db-b\n",
        f"{RUN}out/a --use_cache db\n{RUN}out/a --use_cache db --limit 5\n",
        f"{RUN}out/a --use_cache db\nrm db_rank0.db\n{RUN}out/b --use_cache db\n",
        f"{HEAD}  [ -f base.json ] || python eval.py --model org/base --out base.json\ndone\n",
        f"{HEAD}  [ -d merged ] || {MERGE}\n  python eval.py --model merged\n  rm -r merged\ndone\n",
        f"{HEAD}  [ -d merged-$step ] || {MERGE}-$step\ndone\n",
        f"{HEAD}  [ -d data ] || python prepare.py --out data\n  {RUN}out/$step\ndone\n",
        "for try in 1 2 3; do\n  [ -f out.json ] && break\n  python train.py --out out.json\ndone\n",
        f"{HEAD}  [ -d out/checkpoint-$step ] || continue\n  {RUN}out/checkpoint-$step\ndone\n",
        f"{HEAD}  [ -d merged ] && rm -r merged\n  {MERGE}\ndone\n",
    ],
)
def test_paths_of_their_own_are_silent(tmp_path: Path, text: str) -> None:
    assert not findings(tmp_path, text)


def test_logs_beside_are_evidence(tmp_path: Path) -> None:
    line = "INFO [api.model:298] Cached requests: {}, Requests remaining: {}\n"
    (tmp_path / "eval-1.log").write_text(line.format(0, 9) + line.format(9, 0) * 2)
    (tmp_path / "run.sh").write_text(f"{HEAD}  {RUN}out/$step --use_cache db\ndone\n")
    (finding,) = lint([tmp_path / "run.sh"], select=["CMD090"]).findings
    assert finding.cases[0].line == 2
    assert "eval-1.log:2" in finding.evidence[0]
    assert "2 times" in finding.evidence[0]
