"""What a cause needs, what speaks against it, and which lines are shown for it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from truetune.checks.explaining.guides import GUIDES, Cause
from truetune.checks.explaining.recognise_project_traits_behind_causes import (
    Trait,
    patterns_of_wrong_and_missing_names,
    traits_mentioned_as_missing,
)
from truetune.logs.run_log import Curve, RunLog
from truetune.troubleshooting.find_traits_shown_by_project_lines import read_facts_of_project
from truetune.troubleshooting.project_evidence_for_ruling_out_causes import read_evidence
from truetune.troubleshooting.project_words import ProjectText
from truetune.troubleshooting.rank_causes import (
    _causes_of_rules,
    choose_guides,
    keep_possible_guides,
    rank_causes,
)
from truetune.troubleshooting.rule_out_causes import find_reason_against

TRAINS = "SFTTrainer(model=m, args=TrainingArguments(output_dir='out')).train()\n"
ASKS = "out = model.generate(**ids)\n"


def cause(begin: str) -> Cause:
    """The cause that begins so."""
    causes = [one for guide in GUIDES for one in guide.causes]
    causes += [one for _, _, one in _causes_of_rules()]
    return next(one for one in causes if one.text.startswith(begin))


def reason(begin: str, text: str, *logs: RunLog, question: str = "it is bad") -> str:
    """What speaks against the cause that begins so, in a project of one script."""
    one = cause(begin)
    evidence = read_evidence(question, [ProjectText(Path("train.py"), text, True)], logs)
    return find_reason_against(f"{one.text}\n{one.seen}", evidence)


def log(name: str, values: list[float]) -> RunLog:
    """A log of one curve, 10 steps a record."""
    steps = np.arange(1, len(values) + 1, dtype=float) * 10
    return RunLog("run.log", "JSONL", curves={name: Curve(steps, np.asarray(values))})


CLASSIFIER = "m = AutoModelForSequenceClassification.from_pretrained('q', num_labels=9)\n"
GRPO = "GRPOTrainer(model=m, reward_funcs=[paid], args=GRPOConfig(output_dir='out')).train()\n"
RULED_OUT = [
    ("the learning rate is too low, or beta", GRPO),
    ("the run has too few optimizer steps: pairs", GRPO),
    ("the classifier's pad_token_id", CLASSIFIER + "m.config.pad_token_id = tok.pad_token_id"),
    (
        "the classifier's pad_token_id",
        CLASSIFIER + "model.config.pad_token_id = self.tokenizer.pad_token_id",
    ),
    ("a warm-up is set, but the schedule", TRAINS + "lr_scheduler_type='cosine', warmup_ratio=0.1"),
    ("a warm-up is set, but the schedule", "micro_batch_size: 2\nlr_scheduler: linear"),
    ("a warm-up is set, but the schedule", TRAINS),
    ("one process was started", "NPROC_PER_NODE=8 llamafactory-cli train a.yaml"),
    ("one process was started", "torchrun --nproc_per_node 4 train.py"),
    ("ms-swift without NPROC_PER_NODE", "accelerate launch --num_processes 2 train.py"),
    ("one GPU of several works", "|   0  Tesla T4        Off |\ndevice_map={'': 0}"),
    ("every process puts its model on GPU 0", "torch.cuda.set_device(local_rank)"),
    ("every process puts its model on GPU 0", TRAINS),
    ("every process puts its model on GPU 0", "GPU 3 has a total capacity of 39 GiB"),
    (
        "load_best_model_at_end is set, but checkpoints",
        TRAINS + "eval_strategy='epoch', save_strategy='epoch'",
    ),
    (
        "LLaMA-Factory resumes an earlier run",
        "stage: sft\nfinetuning_type: lora\noverwrite_output_dir: true",
    ),
    ("LLaMA-Factory resumes an earlier run", TRAINS),
    ("nothing is trainable", TRAINS + "peft_config = LoraConfig(r=16)"),
    ("nothing is trainable", "finetuning_type: lora\nlora_rank: 8"),
    ("labels are padded with the pad", "labels = F.pad(labels, (0, n), value=-100)"),
    ("labels are padded with the pad", "DataCollatorForSeq2Seq(tok)"),
    ("evaluated without the chat template", "x = tok.apply_chat_template(m)\n" + ASKS),
    ("evaluated without the chat template", "client.chat.completions.create(messages=m)"),
    (
        "apply_chat_template was called without",
        "x = tok.apply_chat_template(m, add_generation_prompt=True)\n" + ASKS,
    ),
    ("the prompt was decoded", ASKS + "tok.decode(out[0][ids['input_ids'].shape[1]:])"),
    ("the prompt was decoded", "client.chat.completions.create(model='m')"),
    ("special tokens are in", ASKS + "tok.decode(out[0], skip_special_tokens=True)"),
    ("a sampler without set_epoch", "sampler.set_epoch(epoch)"),
    ("a sampler without set_epoch", TRAINS),
    ("a fine-tuning job starts from", "AutoModelForCausalLM.from_pretrained('org/m')"),
    ("activations or gradients overflow", TRAINS + "bf16=True"),
    ("answers are sampled", ASKS + "do_sample=False"),
    ("the nodes wait at MASTER_ADDR", "export MASTER_ADDR=$(scontrol show hostnames | head -1)"),
    ("torchrun for several nodes", "srun --label torchrun --nnodes 2 train.py"),
    ("a merge loads the whole base", "from_pretrained(B, device_map='cpu')\nm.merge_and_unload()"),
    ("the model is loaded before ZeRO-3", "finished initializing model - num_params = 339"),
    ("vLLM on the GPU that trains", "vllm serve out/merged"),
    ("Adafactor sets", TRAINS + "optim='adamw_torch'"),
    ("label smoothing of 0.5", TRAINS + "DPOConfig(beta=0.1)"),
    ("nn.DataParallel", "torchrun --nproc_per_node=2 train.py"),
    ("gradients under FSDP1", "fully_shard(model)\nclip_grad_norm_(model.parameters(), 1.0)"),
    ("gradients under FSDP1", "fsdp_version: 2"),
    ("a perplexity that is the mean", "ppl = math.exp(metrics['eval_loss'])"),
    ("a perplexity that is the mean", "print(torch.exp(total / tokens))"),
]
KEPT = [
    ("the learning rate is too low, or beta", GRPO + "DPOTrainer(model=m)\n"),
    ("the learning rate is too low, or beta", "DPOConfig(beta=0.1)\n"),
    ("all answers of a group get the same reward", GRPO),
    ("the classifier's pad_token_id", CLASSIFIER + "m.config.pad_token_id = tok.eos_token_id"),
    ("the classifier's pad_token_id", CLASSIFIER + "tok.pad_token = tok.eos_token"),
    (
        "a warm-up is set, but the schedule",
        TRAINS + "lr_scheduler_type='constant', warmup_steps=100",
    ),
    ("one process was started", "python train.py"),
    ("one process was started", "num_processes: 1"),
    ("ms-swift without NPROC_PER_NODE", "tune run lora_single_device --nproc_per_node 4"),
    ("one GPU of several works", "|   0  Tesla T4    |\n|   1  Tesla T4    |\ndevice_map='auto'"),
    ("every process puts its model on GPU 0", "torchrun train.py\nmodel.to('cuda:0')"),
    ("every process puts its model on GPU 0", TRAINS + "device_map={'': 0}"),
    (
        "load_best_model_at_end is set, but checkpoints",
        TRAINS + "load_best_model_at_end=True, save_steps=300",
    ),
    (
        "LLaMA-Factory resumes an earlier run",
        "stage: sft\nfinetuning_type: lora\noverwrite_output_dir: false",
    ),
    ("nothing is trainable", TRAINS + "PeftModel.from_pretrained(m, 'a')\nLoraConfig(r=1)"),
    ("labels are padded with the pad", "labels = pad_sequence(labels, tok.pad_token_id)"),
    ("labels are padded with the pad", "labels = ids.clone()"),
    ("evaluated without the chat template", "ids = tok(question)\n" + ASKS),
    (
        "apply_chat_template was called without",
        "x = tok.apply_chat_template(m, tokenize=False)\n" + ASKS,
    ),
    ("the prompt was decoded", ASKS + "tok.decode(out[0])"),
    ("special tokens are in", ASKS + "tok.decode(out[0])"),
    ("a sampler without set_epoch", "DistributedSampler(rows)\nloss.backward()"),
    ("a fine-tuning job starts from", "run_clm.py --config_name gpt2"),
    ("activations or gradients overflow", TRAINS + "fp16=True"),
    ("answers are sampled", ASKS + "do_sample=True, temperature=0.7"),
    ("the nodes wait at MASTER_ADDR", "export MASTER_ADDR=localhost\n#SBATCH --nodes=2"),
    ("torchrun for several nodes", "#SBATCH --nodes=2\ntorchrun --nnodes 2 train.py"),
    ("a merge loads the whole base", "from_pretrained(B, device_map='auto')\nm.merge_and_unload()"),
    ("the model is loaded before ZeRO-3", "zero3_init_flag: false"),
    ("vLLM on the GPU that trains", "use_vllm=True\n" + TRAINS),
    ("Adafactor sets", TRAINS + "optim='adafactor'"),
    ("Adafactor sets", "optim: what"),
    ("label smoothing of 0.5", TRAINS + "label_smoothing=0.5"),
    ("nn.DataParallel", "python train.py"),
    ("gradients under FSDP1", "model = FSDP(model)\nclip_grad_norm_(model.parameters(), 1.0)"),
    ("gradients under FSDP1", "fully_shard(a)\nmodel = FullyShardedDataParallel(model)"),
    ("a perplexity that is the mean", "scores.append(torch.exp(loss).item())"),
    ("a perplexity that is the mean", "ppls.append(math.exp(eval_loss))"),
    ("a perplexity that is the mean", "x = torch.exp(nll).mean()"),
]
BUSY = "an epoch takes as long as before, all 4 GPUs at 98 %"


@pytest.mark.parametrize(("begin", "text"), RULED_OUT)
def test_what_a_cause_needs_is_not_there(begin: str, text: str) -> None:
    assert reason(begin, text)


@pytest.mark.parametrize(("begin", "text"), KEPT)
def test_what_a_cause_needs_may_be_there(begin: str, text: str) -> None:
    assert not reason(begin, text)


def test_a_loss_that_is_no_zero_has_labels() -> None:
    begin = "no token has a label"
    assert reason(begin, TRAINS, log("loss", [1.9] * 12))
    assert not reason(begin, TRAINS, log("loss", [0.0] * 12))
    assert not reason(begin, TRAINS)


def test_a_run_that_made_its_steps_did_not_stop_before_the_first() -> None:
    begin = "FSDP is set to wrap a layer class"
    assert reason(begin, "", log("loss", [1.9] * 12))
    assert not reason(begin, "")


def test_causes_of_an_evaluation_loss_need_one_who_speaks_of_it() -> None:
    begin = "rows of the evaluation without a label"
    assert reason(begin, TRAINS, question="accuracy of the classifier is 24 %")
    assert not reason(begin, TRAINS, question="eval_loss is nan")
    assert reason(begin, TRAINS, log("eval_loss", [1.2] * 12), question="eval_loss is odd")
    assert not reason(begin, TRAINS, log("eval_loss", [np.nan] * 12), question="eval_loss is odd")


@pytest.mark.parametrize(
    ("begin", "question", "is_ruled_out"),
    [
        ("one process was started", BUSY, True),
        ("one process was started", "both cards are busy, and it is no faster", True),
        ("GPUs are mostly idle", BUSY, True),
        ("GPUs are mostly idle", "each of the 8 GPUs shows 100% utilization", True),
        ("one process was started", "one of 4 GPUs at 98 %, the others at 0 %", False),
        ("one process was started", "only 2 GPUs at 98 %", False),
        ("one process was started", "one of the 4 GPUs is busy", False),
        ("GPUs are mostly idle", "all 4 GPUs at 12 %", False),
        ("one process works on all GPUs", "with torchrun on 4 GPUs the loss is flat", True),
        ("one process works on all GPUs", "4 GPUs are no faster than one", False),
        ("gradients under FSDP1", "under FSDP2 the loss stays", True),
        ("gradients under FSDP1", "under FSDP the loss is noisy", False),
        ("dropout is on in training", "eval loss is nan", True),
        ("dropout is on in training", "eval loss is lower than the training loss", False),
    ],
)
def test_what_the_user_sees_speaks_against_a_cause(
    begin: str, question: str, is_ruled_out: bool
) -> None:
    assert bool(reason(begin, "", question=question)) == is_ruled_out


def test_a_leak_makes_no_measure_too_bad() -> None:
    begin = "rows of the evaluation are in"
    assert reason(begin, "", question="exact match is 0.0 for all rows")
    assert not reason(begin, "", question="F1 is 1.00, and in production it is bad")
    assert not reason(begin, "", question="the metric looks odd")


def test_a_guide_on_preferences_needs_preferences() -> None:
    question = "the adapter has no effect, the model answers as before the DPO-like training"
    plain = ProjectText(Path("a.yaml"), "stage: sft\nnum_train_epochs: 3\n", True)
    pairs = ProjectText(Path("a.yaml"), "stage: dpo\nnum_train_epochs: 3\n", True)
    guides = tuple(
        (guide, 1.0) for guide in GUIDES if guide.name in ("dpo-without-effect", "never-stops")
    )

    def names(text: ProjectText, words: str) -> set[str]:
        return {
            guide.name
            for guide, _ in keep_possible_guides(guides, read_facts_of_project(words, [text]))
        }

    assert names(plain, "no effect") == {"never-stops"}
    assert "dpo-without-effect" in names(pairs, "no effect")
    assert "dpo-without-effect" in names(plain, question)
    only = tuple(pair for pair in guides if pair[0].name == "dpo-without-effect")
    assert keep_possible_guides(only, read_facts_of_project("no effect", [plain])) == only


def lines_of(begin: str, question: str, text: str) -> list[str]:
    """The lines that are shown for a cause."""
    facts = read_facts_of_project(question, [ProjectText(Path("train.py"), text, True)])
    ranked = rank_causes(choose_guides(question), question, frozenset(), facts)
    found = next(one for one in ranked if one.cause.text.startswith(begin))
    return [line.text for line in found.lines]


def test_lines_that_support_a_cause_are_shown_and_others_are_not() -> None:
    slow = "training on several gpus is slow"
    auto = "one GPU of several works"
    assert lines_of(auto, slow, "device_map='auto',") == ["device_map='auto',"]
    assert lines_of(auto, slow, "device_map={'': 0},") == []
    empty = "answers are garbage"
    call = "apply_chat_template was called without"
    bare = "ids = tok.apply_chat_template(messages)"
    assert lines_of(call, empty, bare) == [bare]
    assert lines_of(call, empty, "tok.apply_chat_template(m, add_generation_prompt=True)") == []
    flat = "the loss does not fall"
    assert lines_of("the learning rate is far too small", flat, "learning_rate=1e-9,") == [
        "learning_rate=1e-9,"
    ]
    assert lines_of("the schedule has ended", flat, "lr_scheduler_type='cosine',") == []


def test_words_of_code_and_what_is_missed_are_read_from_the_text() -> None:
    there, missed = patterns_of_wrong_and_missing_names(
        "f_x was called without key_a=True: it ends; see other_b"
    )
    assert [bool(word.search("f_x(key_a=True)")) for word in (*there, *missed)] == [True, True]
    assert not any(word.search("other_b") for word in (*there, *missed))
    assert not any(word.search("key_a=False") for word in missed)
    assert traits_mentioned_as_missing("evaluated without the chat template") == {
        Trait.CHAT_TEMPLATE
    }
    assert Trait.CHAT_TEMPLATE not in traits_mentioned_as_missing(
        "a chat template without a header"
    )


@pytest.mark.parametrize(
    ("question", "guide"),
    [
        ("train and eval loss are great but on vLLM the model behaves like plain Qwen", True),
        ("eval loss is fine, and the adapter answers just like the base", True),
        ("the loss goes to almost zero but the model makes up the data of our parts", True),
        ("my eval accuracy behaves like the original metric", False),
    ],
)
def test_a_model_that_does_as_its_base(question: str, guide: bool) -> None:
    assert (choose_guides(question)[0][0].name == "nothing-is-learned") is guide


def test_memory_that_grows_has_what_is_kept_first() -> None:
    question = "out of memory after 90 steps, memory grows with every step"
    ranked = rank_causes(choose_guides(question), question, frozenset())
    kept = {"losses-kept-with-graph", "outputs-kept-on-the-device"}
    assert all(kept & set(one.cause.rules) for one in ranked[:2])
    of_host = "host RAM grows during the epoch until the worker is killed, memory grows"
    ranked = rank_causes(choose_guides(of_host), of_host, frozenset())
    assert not kept & set(ranked[0].cause.rules)
