"""Commands that train, evaluate or serve something else than they say, and their near misses."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.lint import lint

MEGATRON = (
    "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 32 --micro-batch-size 1 --train-iters 1000 --lr 1e-5"
    " --position-embedding-type rope --save ckpt/out "
)
LOOP = "for {0} in {1}; do\n  python {2}\ndone\n"
TRAINING = (
    "trl sft --model_name_or_path o/m --dataset_name d --max_length 2048 --output_dir out/sft"
)
EVALUATION = (
    "lm_eval --model vllm --model_args pretrained=out/sft --tasks ifeval --apply_chat_template"
)
HARNESS = "lm_eval --model vllm --apply_chat_template --tasks "
SERVE = "vllm serve {0} --enable-auto-tool-choice --tool-call-parser {1}"


def fires(folder: Path, rule: str, text: str, name: str = "run.sh") -> bool:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return bool(lint([path], select=[rule]).findings)


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        ("server-parser-of-another-family", SERVE.format("Qwen/Qwen2.5-7B-Instruct", "llama3_json")),
        ("server-parser-of-another-family", SERVE.format("./out/qwen3-8b-merged", "mistral")),
        ("server-parser-of-another-family", SERVE.format("mistralai/Mistral-7B-Instruct-v0.3", "hermes")),
        ("server-parser-of-another-family", SERVE.format("openai/gpt-oss-20b", "hermes")),
        (
            "server-parser-of-another-family",
            "python -m sglang.launch_server --model-path meta-llama/Llama-3.3-70B-Instruct --tool-call-parser qwen25",
        ),
        ("harness-scores-few-rows", f"{HARNESS}mmlu --model_args pretrained=a --limit 0.1 --log_samples"),
        ("harness-scores-few-rows", "lighteval vllm a b --max-samples 20 --output-dir res"),
        (
            "harness-doubles-bos",
            f"{HARNESS}ifeval --model_args pretrained=google/gemma-2-9b-it,add_bos_token=true",
        ),
        ("harness-cuts-reasoning", f"{HARNESS}aime --model_args pretrained=Qwen/Qwen3-8B,max_gen_toks=512"),
        (
            "harness-cuts-reasoning",
            f"{HARNESS}aime --model_args pretrained=Qwen/QwQ-32B --gen_kwargs '{{\"max_gen_toks\": 256}}'",
        ),
        (
            "harness-cuts-few-shot-prompts",
            f"{HARNESS}bbh --model_args pretrained=a,max_model_len=512 --num_fewshot 3",
        ),
        ("launcher-options-after-the-script", "accelerate launch train.py --num_processes 4 --lr 1"),
        ("launcher-options-after-the-script", "deepspeed train.py --num_gpus=4 --lr 1"),
        ("loop-variable-unused-by-training", LOOP.format("seed", "1 2", "t.py --seed 1 --out run_$seed")),
        ("loop-variable-unused-by-training", LOOP.format("r", "8 16", "t.py --lora_r=8 --save_dir o/$r")),
        (
            "loop-variable-unused-by-training",
            LOOP.format("BETA", "1 2", "dpo.py --beta 0.1 --run_name b$BETA > log_$BETA.txt"),
        ),
        (
            "loop-runs-overwrite-each-other",
            LOOP.format("D", "a b", "sft.py --dataset $D --output_dir out/m"),
        ),
        (
            "loop-runs-overwrite-each-other",
            "#SBATCH --array=0-3\nLR=$((SLURM_ARRAY_TASK_ID + 1))e-5\npython train.py --lr $LR --output_dir out/m\n",
        ),
        ("evaluation-starts-before-training-ends", f"nohup {TRAINING} > log 2>&1 &\n{EVALUATION}\n"),
        (
            "evaluation-starts-before-training-ends",
            "python sft.py --output_dir runs/a &\npython dpo.py --model runs/a --output_dir runs/b\n",
        ),
        (
            "container-loses-the-trained-weights",
            "sudo docker run --rm -v $PWD/d:/d i python train.py --output_dir=/out/m",
        ),
        (
            "container-loses-the-trained-weights",
            "docker run --rm --mount type=bind,source=/d,target=/d i python sft.py --output_dir /w/m",
        ),
        ("rotary-base-of-another-model", f"{MEGATRON} --finetune --load ckpt/qwen2.5-7b-mcore"),
        (
            "rotary-base-of-another-model",
            f"{MEGATRON} --load ckpt/a --tokenizer-model meta-llama/Llama-3.1-8B --rotary-base 10000",
        ),
        ("megatron-takes-over-the-old-run", f"{MEGATRON} --load ckpt/base"),
        ("megatron-schedule-does-not-fit-the-run", f"{MEGATRON} --lr-decay-iters 100"),
        ("megatron-schedule-does-not-fit-the-run", f"{MEGATRON} --lr-decay-iters 500000"),
        ("job-trains-random-weights", f"{MEGATRON} --exit-on-missing-checkpoint"),
        ("command-sampling-distorts-answers", "llama-server -m a.gguf --repeat-penalty 1.6"),
        (
            "command-sampling-distorts-answers",
            f"{HARNESS}gsm8k --model_args pretrained=a --gen_kwargs repetition_penalty=1.5,do_sample=true",
        ),
        ("llama-server-divides-its-context", "llama-server -m a.gguf --ctx-size 4096 --parallel 8"),
        (
            "hyperparameter-variable-unused",
            "MODEL=a\nLORA_R=64\npython sft.py --model $MODEL --lora_r 16\n",
        ),
        (
            "hyperparameter-variable-unused",
            "M=a\nMAX_LENGTH=4096 # tokens\ntrl sft --model_name_or_path $M --output_dir o\n",
        ),
    ],
)  # fmt: skip
def test_what_a_command_does_not_do_is_named(tmp_path: Path, rule: str, text: str) -> None:
    assert fires(tmp_path, rule, text)


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        ("server-parser-of-another-family", SERVE.format("NousResearch/Hermes-3-Llama-3.1-8B", "hermes")),
        ("server-parser-of-another-family", SERVE.format("Qwen/Qwen3-Coder-30B-A3B-Instruct", "qwen3_coder")),
        ("server-parser-of-another-family", SERVE.format("meta-llama/Llama-3.2-3B-Instruct", "pythonic")),
        ("server-parser-of-another-family", SERVE.format("Qwen/Qwen2.5-7B-Instruct", "$PARSER")),
        ("server-parser-of-another-family", SERVE.format("./out/merged", "hermes")),
        ("server-parser-of-another-family", "vllm serve Qwen/Qwen3-8B --reasoning-parser deepseek_r1"),
        ("harness-scores-few-rows", f"{HARNESS}mmlu --model_args pretrained=a --limit 50"),
        ("harness-scores-few-rows", f"{HARNESS}mmlu --model_args pretrained=a --limit 1000 --log_samples"),
        ("harness-scores-few-rows", f"{HARNESS}mmlu --model_args pretrained=a --limit $N --log_samples"),
        ("harness-doubles-bos", f"{HARNESS}a --model_args pretrained=Qwen2.5-7B,add_bos_token=True"),
        ("harness-doubles-bos", "lm_eval --tasks a --model_args pretrained=google/gemma-2-9b,add_bos_token=True"),
        ("harness-cuts-reasoning", f"{HARNESS}a --model_args pretrained=Qwen3-8B,enable_thinking=False,max_gen_toks=9"),
        ("harness-cuts-reasoning", f"{HARNESS}a --model_args pretrained=Qwen2.5-7B,max_gen_toks=256"),
        ("harness-cuts-few-shot-prompts", f"{HARNESS}gsm8k --model_args pretrained=a,max_length=2048 --num_fewshot 5"),
        ("harness-cuts-few-shot-prompts", f"{HARNESS}arc --model_args pretrained=a,max_length=512 -f 5"),
        ("launcher-options-after-the-script", "torchrun --nproc_per_node 8 train.py --lr 1"),
        ("launcher-options-after-the-script", "torchrun --nproc_per_node 1 launch.py --nproc_per_node 8"),
        ("launcher-options-after-the-script", "accelerate launch -m trl.scripts.sft --num_processes 2"),
        ("loop-variable-unused-by-training", LOOP.format("seed", "1 2", "t.py --seed $seed --out run_$seed")),
        ("loop-variable-unused-by-training", LOOP.format("LR", "1 2", "t.py --seed 1 --out run_$LR")),
        ("loop-variable-unused-by-training", LOOP.format("LR", "1 2", "t.py --c c_$LR.yaml --lr 1 --o r_$LR")),
        ("loop-variable-unused-by-training", LOOP.format("m", "a b", "eval.py --model out/$m --output_dir res/$m")),
        ("loop-runs-overwrite-each-other", LOOP.format("s", "1 2", "t_sft.py --seed $s --output_dir o/m\n mv o/m k$s")),
        ("loop-runs-overwrite-each-other", LOOP.format("s", "1 2", "train.py --seed $s --output_dir out/$s")),
        ("loop-runs-overwrite-each-other", LOOP.format("s", "1 2", "train.py --resume c --data d$s --output_dir o/m")),
        ("loop-runs-overwrite-each-other", LOOP.format("t", "a b", "eval.py --task $t --output_dir out/m")),
        ("loop-runs-overwrite-each-other", LOOP.format("s", "1 2", "mason.py train.py --seed $s --output_dir /o")),
        ("loop-runs-overwrite-each-other", LOOP.format("s", "1", "train.py --seed $s --output_dir o/m")),
        ("loop-runs-overwrite-each-other", LOOP.format("a", "x y", "ask.py --use sft_$a --seed 0 --output_dir o/m")),
        ("evaluation-starts-before-training-ends", f"{TRAINING} &\nwait\n{EVALUATION}\n"),
        ("evaluation-starts-before-training-ends", f"{TRAINING} &\ntensorboard --logdir out/sft\n"),
        ("evaluation-starts-before-training-ends", f"{TRAINING} && echo done\n{EVALUATION}\n"),
        ("evaluation-starts-before-training-ends", f"{TRAINING} &\n{EVALUATION.replace('out/sft', 'out/sft2')}\n"),
        ("evaluation-starts-before-training-ends", f"{TRAINING} &\nwhile pgrep trl; do sleep 9; done\n{EVALUATION}\n"),
        ("container-loses-the-trained-weights", "docker run --rm -v $PWD/o:/out i python train.py --output_dir /out/m"),
        ("container-loses-the-trained-weights", "docker run i python train.py --output_dir /out/m"),
        ("container-loses-the-trained-weights", "docker run --rm $MOUNTS i python train.py --output_dir /out/m"),
        ("container-loses-the-trained-weights", "docker run --rm i python train.py --output_dir /o/m --push_to_hub"),
        ("container-loses-the-trained-weights", "docker run --rm --mount src=/o,dst=/o i python sft.py --out_dir /o/m"),
        ("rotary-base-of-another-model", f"{MEGATRON} --tokenizer-model meta-llama/Llama-3.1-8B"),
        ("rotary-base-of-another-model", f"{MEGATRON} --finetune --load c --tokenizer-model meta-llama/Llama-2-7b-hf"),
        ("rotary-base-of-another-model", f"{MEGATRON} --finetune --load ckpt/llama3-8b --use-checkpoint-args"),
        ("rotary-base-of-another-model", f"{MEGATRON} --finetune --load ckpt/llama3-8b --rotary-base 500000"),
        ("megatron-takes-over-the-old-run", f"{MEGATRON} --load ckpt/out"),
        ("megatron-takes-over-the-old-run", f"{MEGATRON} --load ckpt/base --no-load-optim --no-load-rng"),
        ("megatron-takes-over-the-old-run", f"{MEGATRON} --load ckpt/base $MORE"),
        ("megatron-schedule-does-not-fit-the-run", f"{MEGATRON} --lr-decay-iters 900"),
        ("megatron-schedule-does-not-fit-the-run", f"{MEGATRON} --lr-decay-iters 9 --lr-decay-style WSD"),
        ("job-trains-random-weights", f"{MEGATRON} --finetune --pretrained-checkpoint ckpt/base"),
        ("job-trains-random-weights", MEGATRON),
        ("command-sampling-distorts-answers", "llama-server -m a.gguf --temp 0.7 --repeat-penalty 1.1"),
        ("command-sampling-distorts-answers", f"{HARNESS}gsm8k --model_args pretrained=a --gen_kwargs temperature=0.6"),
        ("llama-server-divides-its-context", "llama-server -m a.gguf -c 8192 -np 4"),
        ("llama-server-divides-its-context", "llama-server -m a.gguf -c 512 --embeddings"),
        ("llama-server-divides-its-context", "llama-server -m a.gguf -c 0"),
        ("hyperparameter-variable-unused", "M=a\nexport LORA_R=64\npython sft.py --model $M\n"),
        ("hyperparameter-variable-unused", "M=a\nLORA_R=64\npython sft.py --model $M --r ${LORA_R}\n"),
        ("hyperparameter-variable-unused", "M=a\nLR=1e-4\nsource common.sh\npython sft.py --model $M\n"),
        ("hyperparameter-variable-unused", "M=a\nLR=1e-4\npython evaluate.py --model $M\n"),
    ],
)  # fmt: skip
def test_commands_that_do_what_they_say_are_left_alone(
    tmp_path: Path, rule: str, text: str
) -> None:
    assert not fires(tmp_path, rule, text)


POD = """\
apiVersion: v1
kind: Pod
spec:
  containers:
    - image: my/trainer
      command: [python, sft.py, --output_dir, /out/m]
      volumeMounts: [{{name: out, mountPath: /out}}]
  volumes:
    - {{name: out, {0}}}
"""


@pytest.mark.parametrize(
    ("volume", "is_lost"),
    [("emptyDir: {}", True), ("persistentVolumeClaim: {claimName: a}", False), ("hostPath: {path: /o}", False)],
)  # fmt: skip
def test_a_pods_own_folder_ends_with_the_pod(tmp_path: Path, volume: str, is_lost: bool) -> None:
    rule = "container-loses-the-trained-weights"
    assert fires(tmp_path, rule, POD.format(volume), "job.yaml") is is_lost


@pytest.mark.parametrize(
    ("recipe", "is_lost"),
    [
        ("cd train\n\tpython sft.py", True),
        ("@. .venv/bin/activate\n\tpython sft.py", True),
        ("cd train && python sft.py\n\tls", False),
        ("cd train; \\\n\tpython sft.py", False),
        ("python sft.py\n\tcd train", False),
    ],
)
def test_a_line_of_a_makefile_ends_with_its_shell(
    tmp_path: Path, recipe: str, is_lost: bool
) -> None:
    text = f"all: train\n\ntrain:\n\t{recipe}\n"
    assert fires(tmp_path, "makefile-line-acts-on-itself-alone", text, "Makefile") is is_lost
    one = f".ONESHELL:\n{text}"
    assert not fires(tmp_path, "makefile-line-acts-on-itself-alone", one, "Makefile")


def test_the_recipes_of_a_makefile_are_judged_as_commands(tmp_path: Path) -> None:
    text = "MODEL ?= org/m\nserve:\n\t@vllm serve $(MODEL) \\\n\t  --load-format dummy\n"
    path = tmp_path / "Makefile"
    path.write_text(text, encoding="utf-8")
    found = lint([path], select=["server-loads-no-weights"]).findings
    assert [case.line for finding in found for case in finding.cases] == [3]
