"""A symptom in a user's words leads to the page on it; words of other tools lead to ours."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from truetune.checks.explaining.guides import GUIDES, NO_ANSWER_TOKEN
from truetune.checks.explaining.read_causes_from_pasted_records import list_proofs_of_records
from truetune.checks.explaining.replace_figures_by_their_meaning import words_for_figures
from truetune.checks.explaining.search_rules_messages_guides_commands import (
    list_topics,
    search_topics,
)
from truetune.checks.explaining.stem_words import list_stems
from truetune.checks.rule_catalogue import all_rules
from truetune.cli import truetune_group
from truetune.cli.suggest_meant_words import COMMAND_SYNONYMS, OPTION_WORDS, OTHER_COMMAND_NAMES
from truetune.errors import UsageError

DOCS = Path(__file__).parents[2] / "docs"
ALL = list(
    list_topics(
        {name: command.help or "" for name, command in truetune_group.commands.items()},
        COMMAND_SYNONYMS,
    )
)

OF_A_READER: tuple[tuple[str, set[str]], ...] = (
    (
        "steps are slow on 4 GPUs, one GPU at a time is busy",
        {"device-map-splits-the-trained-model", "device-map-in-a-distributed-script"},
    ),
    ("only one GPU of four is busy", {"gpus-idle"}),
    ("an epoch on 8 GPUs has as many iterations as on one", {"same-rows-on-every-rank"}),
    ("token accuracy 0.03 while eval loss is fine", {"metrics-unshifted"}),
    ("perplexity 6.1 with Llama and 8.9 with Qwen, which is better", {"odd-metrics"}),
    (
        "perplexity 6.1 with Llama and 8.9 with Qwen on the same test set, which one is better?",
        {"odd-metrics"},
    ),
    ("accuracy is 1.0 for every model", {"prompt-left-in-answers", "train-eval-leak"}),
    ("4-bit model generates three times slower than bf16", {"slow-generation"}),
    ("vllm serves requests one after another, slow tokens", {"slow-generation"}),
    ("my own dpo loop prints loss 0.6931 at every step", {"reference-moves-with-the-policy"}),
    ("my own dpo loop prints loss 0.6931 at every step", {"dpo-stuck-at-ln2"}),
)
"""What a fresh reader typed who had not seen the pages"""

WITH_FIGURES: tuple[tuple[str, set[str]], ...] = (
    (
        "all four cards are allocated but nvidia-smi shows work on a single one",
        {"device-map-splits-the-trained-model", "gpus-idle", "several-gpus"},
    ),
    (
        "with 2 nodes the epoch takes exactly as long as with 1",
        {"same-rows-on-every-rank", "several-gpus"},
    ),
    ("f1 is 100% on the very first evaluation", {"odd-metrics", "train-eval-leak"}),
    (
        "exact match stays 0 although the answers look correct",
        {"answers-look-right-but-do-not-parse", "odd-metrics", "parser-misses-gold-answers"},
    ),
    ("can I compare the perplexity of Mistral and Gemma", {"odd-metrics"}),
    ("rewards/margins stay at 0.0 in DPO", {"dpo-stuck-at-ln2", "reference-moves-with-the-policy"}),
    ("loss sits at ln 2 from the first step to the last", {"dpo-stuck-at-ln2"}),
    ("qlora inference takes 3x as long as the unquantized model", {"slow-generation"}),
    ("requests wait for each other in our server, 5 tokens per second", {"slow-generation"}),
    (
        "the model copies the user's message into its reply",
        {"answers-echo-the-prompt", "garbage-output"},
    ),
    (
        "rank 3 is stuck in all_reduce and the others time out",
        {"ddp-hang-or-uneven-ranks", "nccl-timeout", "several-gpus"},
    ),
    ("learning rate warmup never ends", {"learning-rate-never-peaked", "warmup-longer-than-run"}),
    (
        "the last words of long rows are missing",
        {"answers-cut-in-batch", "truncation-cuts-the-terminator"},
    ),
    ("my adapter file is only a few kilobytes", {"adapter-file-empty"}),
    (
        "the text begins with two begin-of-sequence tokens",
        {"bos-twice-in-batch", "render-then-retokenize-double-bos"},
    ),
)
"""Of the same kinds, written before the search was changed: by a figure, a count, a phrase"""

HELD_BACK: tuple[tuple[str, set[str]], ...] = (
    (
        "gpu 0 is at 100% and gpus 1 to 7 at 0%",
        {"device-map-splits-the-trained-model", "gpus-idle", "several-gpus"},
    ),
    (
        "number of steps per epoch did not shrink when I added GPUs",
        {"same-rows-on-every-rank", "several-gpus"},
    ),
    ("macro f1 of 0.02 though the loss looks healthy", {"metrics-unshifted", "odd-metrics"}),
    (
        "every checkpoint reaches 100 % on the test set",
        {"odd-metrics", "prompt-left-in-answers", "train-eval-leak"},
    ),
    ("perplexity of models with different vocabularies", {"odd-metrics"}),
    ("my bnb nf4 model is slower than the fp16 one", {"slow-generation"}),
    ("vllm throughput is bad with one user at a time", {"slow-generation"}),
    (
        "own preference training loop: 0.693 forever",
        {"dpo-stuck-at-ln2", "reference-moves-with-the-policy"},
    ),
    (
        "train loss 0.0001 after ten steps and output is rubbish",
        {"garbage-output", "nothing-is-learned"},
    ),
    (
        "it writes the user's next question after its answer",
        {"never-stops", "only-some-assistant-turns-supervised"},
    ),
    ("process got signal 9 in the middle of the epoch", {"killed", "run-was-killed"}),
    (
        "resume starts again from step 0",
        {"resume-from-missing-checkpoint", "resume-starts-fresh", "resume-state-missing"},
    ),
    (
        "chat template missing in the tokenizer",
        {"chat-data-without-template", "chat-template-missing-or-old-in-checkpoint"},
    ),
    (
        "labels are all -100",
        {"line-without-label", "no-supervised-token", "truncation-leaves-no-label"},
    ),
    ("grad norm is huge and loss jumps up", {"grad-norm-explodes", "loss-diverges", "loss-spikes"}),
)
"""Written at the same time, and not used while the search was changed"""


def told(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(truetune_group, list(arguments), standalone_mode=True)
    return done.exit_code, done.output


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("loss is flat", {"loss-does-not-fall", "flat-loss"}),
        ("the loss doesn't go down at all", {"loss-does-not-fall"}),
        ("my model talks nonsense after fine-tuning", {"garbage-output"}),
        ("it keeps generating and never stops", {"never-stops"}),
        ("CUDA OOM during evaluation", {"out-of-memory", "eval-oom-logits-kept"}),
        ("training on 2 gpus is not faster than one", {"several-gpus"}),
        ("DPO changes nothing", {"dpo-without-effect"}),
        ("accuracy is suspiciously high", {"odd-metrics"}),
        ("inference got slower", {"slow-generation", "settings-make-generation-slow"}),
        ("works in the notebook but not in vllm", {"good-here-bad-there"}),
        ("loss becomes nan", {"loss-is-nan", "loss-not-finite"}),
        ("job was killed", {"killed", "run-was-killed"}),
        ("pad", {"padding-supervised", "no-pad-token", "labels-padded-with-pad-token"}),
        ("labels are shifted two times", {"double-label-shift"}),
        ("401 when downloading llama", {"gated-or-private-repository"}),
        ("unexpected keyword argument tokenizer", {"argument-removed"}),
        ("no space left", {"disk-full"}),
        (
            "tokens I added are not learned",
            {"added-tokens-left-frozen", "new-token-rows-not-trained"},
        ),
        ("how much memory do I need", {"out-of-memory", "plan"}),
        ("same rows in train and test", {"train-eval-leak", "evaluated-on-training-rows"}),
        ("val loss goes up", {"eval-loss-rises"}),
        ("model keeps talking", {"never-stops"}),
        ("nan after 100 steps", {"loss-not-finite", "loss-is-nan"}),
        ("gradient norm 0", {"grad-norm-zero"}),
        ("CUDA error device-side assert", {"device-side-assert"}),
        ("outputs are the same for all inputs", {"nothing-is-learned"}),
        ("eos", {"stopping-never-learned", "trained-stop-not-served"}),
        (
            "model answers in chinese",
            {"answers-change-language", "answers-mix-languages-unasked"},
        ),
        ("my prompts are trained too", {"prompt-supervised"}),
        ("learning rate too high", {"steps-larger-than-the-weights", "loss-does-not-fall"}),
        ("how much vram do I need", {"plan"}),
        ("my model forgot how to stop", {"never-stops"}),
        ("model got dumber after fine tuning", {"worse-than-its-base"}),
        ("what does my data look like in tokens", {"show"}),
        ("same loss every step", {"loss-repeats-exactly"}),
        ("which column is trained", {"another-field-supervised"}),
        ("bos twice", {"bos-twice-in-batch"}),
        ("chosen and rejected are swapped", {"preference-pairs-swapped"}),
        ("merged model is worse than the adapter", {"good-here-bad-there"}),
        ("rows are truncated", {"truncation-cuts-the-terminator"}),
        ("temperature", {"temperature-is-too-high"}),
        ("inspect", {"show"}),
        ("preflight", {"check"}),
        ("validate", {"check"}),
    ],
)
def test_a_symptom_leads_to_its_page(question: str, expected: set[str]) -> None:
    assert {hit.topic.name for hit in search_topics(question, ALL)} & expected


@pytest.mark.parametrize(("question", "expected"), [*OF_A_READER, *WITH_FIGURES, *HELD_BACK])
def test_a_symptom_with_figures_and_phrases_leads_to_its_page(
    question: str, expected: set[str]
) -> None:
    assert {hit.topic.name for hit in search_topics(question, ALL)} & expected


@pytest.mark.parametrize(
    ("question", "subject", "other"),
    [
        ("an epoch on 8 GPUs has as many iterations as on one", "several-gpus", "answers-loop"),
        ("accuracy is 1.0 for every model", "odd-metrics", "dpo-without-effect"),
        ("perplexity 6.1 with Llama and 8.9 with Qwen, which is better", "odd-metrics", "several-gpus"),
        ("my own dpo loop prints loss 0.6931 at every step", "reference-moves-with-the-policy",
         "policy-differs-from-its-reference"),
        ("token accuracy 0.03 while eval loss is fine", "metrics-unshifted", "dpo-accuracy-at-once"),
    ],
)  # fmt: skip
def test_a_page_on_another_subject_does_not_come_before(
    question: str, subject: str, other: str
) -> None:
    names = [hit.topic.name for hit in search_topics(question, ALL, len(ALL))]
    assert subject in names
    assert other not in names[: names.index(subject)]


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("loss 0.6931", "ln2"), ("stays at 0.69", "ln2"), ("loss is ln(2)", "ln2"), ("accuracy of 0.99", "perfect"),
        ("f1: 3%", "chance"), ("exact match is 0.0", "zero"), ("4-bit", "quantized"), ("exit code 137", "killed"),
        ("labels are -100", "masked"), ("on 8 GPUs", "several"), ("one of four A100s", "several"),
    ],
)  # fmt: skip
def test_a_figure_is_read_as_what_it_means(text: str, word: str) -> None:
    assert word in words_for_figures(text).split()


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("loss 1.6931", "ln2"), ("version 0.691", "ln2"), ("accuracy of 0.71", "perfect"), ("f1 of 0.45", "chance"),
        ("gpu 0", "zero"), ("loss 0.31", "zero"), ("loss is 2.0", "zero"), ("a gpu", "several"),
        ("16-bit", "quantized"),
    ],
)  # fmt: skip
def test_a_figure_that_means_nothing_is_no_word(text: str, word: str) -> None:
    assert word not in words_for_figures(text).split()


def test_small_numbers_and_counts_say_nothing() -> None:
    assert list_stems("1 8 16 6.1 one two many") == []


def test_causes_name_rules_that_there_are() -> None:
    named = {rule for guide in GUIDES for cause in guide.causes for rule in cause.rules}
    assert named - {rule.name() for rule in all_rules()} == set()


def test_a_rule_is_found_by_what_users_see_of_it() -> None:
    shown = " ".join(told("explain", "odd-metrics")[1].split())
    assert "another tokenizer" in shown
    assert "proved by metrics-unshifted" in shown


@pytest.mark.parametrize(
    ("question", "cause"),
    [
        ("gguf in ollama rambles gibberish, Modelfile only has FROM", "no TEMPLATE"),
        (
            "gguf q4_k_m is gibberish in llama.cpp, the f16 notebook is fine",
            "quantized too coarsely",
        ),
        (
            "fine for short prompts, gibberish when the prompt is longer than 8k",
            "prompts are longer",
        ),
        ("gemma 3 writes only !!!!!! on a T4 after training", "overflow in float16"),
        ("dpo on 56 pairs was over in 2 minutes and nothing changed", "too few optimizer steps"),
        (
            "vllm answers word for word as after the sft though the dpo curves look great",
            "before the DPO",
        ),
        ("answers are full of &nbsp; and html tags", "HTML markup"),
        ("only one prompt of each batch is answered well", "padded on the right"),
    ],
)
def test_the_cause_is_shown_under_its_guide(question: str, cause: str) -> None:
    shown = [one.text for hit in search_topics(question, ALL) for one in hit.causes]
    assert cause in " | ".join(shown)


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.name)
def test_a_guide_is_found_by_each_of_its_sentences(guide: Any) -> None:
    assert guide in GUIDES
    for text in guide.asked:
        hits = search_topics(text, ALL)
        assert guide.name in [hit.topic.name for hit in hits], text


def test_guides_lead_to_pages_and_commands_that_exist() -> None:
    for guide in GUIDES:
        assert (DOCS / guide.page).is_file(), guide.page
        assert guide.command.split()[1] in truetune_group.commands


def test_a_search_is_quick() -> None:
    began = time.process_time()
    hits = search_topics("loss is flat", list_topics())
    assert len(hits) == 5
    assert time.process_time() - began < 0.5


def test_nothing_is_found_for_words_that_say_nothing() -> None:
    assert search_topics("please help me", ALL) == []
    assert search_topics("", ALL) == []
    with pytest.raises(UsageError, match="nothing is known of 'qqxzv'"):
        CliRunner().invoke(
            truetune_group, ["explain", "qqxzv"], standalone_mode=True, catch_exceptions=False
        )


def test_explain_shows_messages_guides_and_hits() -> None:
    assert "truetune plan SETTINGS" in " ".join(told("explain", "cuda-out-of-memory")[1].split())
    assert "Causes, most likely first" in told("explain", "loss-does-not-fall")[1]
    found = json.loads(told("explain", "loss", "is", "flat", "--json")[1])
    assert found["schema"] == "truetune.topics/1"
    assert found["topics"][0] == {
        "kind": "guide",
        "name": "loss-does-not-fall",
        "code": "",
        "title": "The loss does not fall",
        "about": ["loss", "flat"],
        "causes": [
            {
                "text": "the learning rate is far too small",
                "rules": [
                    "flat-loss",
                    "learning-rate-far-from-published",
                    "learning-rate-beyond-reason",
                ],
            },
            {
                "text": "the adapter is scaled away: lora_alpha far below its rank",
                "rules": ["flat-loss"],
            },
        ],
        "advice": "",
        "command": "truetune explain loss-does-not-fall",
    }
    warning = "UserWarning: None of the inputs have requires_grad=True. Gradients will be None"
    pasted = json.loads(told("explain", warning, "--json")[1])["topics"][0]
    assert pasted["kind"] == "message"
    assert "enable_input_require_grads" in pasted["advice"]
    # Of five hits only the first says what to do: the other four would be wrong.
    shown = " ".join(told("explain", warning)[1].split())
    assert f"help: {' '.join(pasted['advice'].split())}" in shown
    assert shown.count("help: ") == 1
    assert told("help", "loss is flat") == told("explain", "loss is flat")
    assert told("help", "plan") == told("plan", "--help")


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (("inspect", "x"), "'show'"),
        (("preflight",), "'check'"),
        (("validate", "x"), "'check'"),
        (("generate",), "'sample'"),
        (("tokenize", "x"), "'encode'"),
        (("vram",), "'plan'"),
        (("analyze", "x"), "'diagnose'"),
        (("finetune",), "'train'"),
        (("dry_run",), "'rehearse'"),
        (("sample", "--num-samples", "5", "m"), "'--prompts'"),
        (("rehearse", "--num-samples", "5", "x"), "'--rows'"),
        (("check", "--seq-len", "5"), "'--max-length'"),
        (("check", "--chat-template", "5"), "'--template'"),
        (("check", "--gpu", "24GB"), "`truetune plan`"),
        (("evaluate", "--max-samples", "5", "m"), "'--limit'"),
        (("run", "--skip", "x"), "'--ignore'"),
    ],
)
def test_words_of_other_tools(arguments: tuple[str, ...], meant: str) -> None:
    code, output = told(*arguments)
    assert code == 2
    assert meant in output


def test_the_tables_name_what_there_is() -> None:
    options = {
        name
        for command in truetune_group.commands.values()
        for param in command.params
        for name in param.opts
    }
    assert set(OTHER_COMMAND_NAMES) <= set(truetune_group.commands)
    assert set(OPTION_WORDS) <= options
    assert {word for words in OTHER_COMMAND_NAMES.values() for word in words} & set(
        truetune_group.commands
    ) == set()


def test_an_option_of_another_tool_leads_to_ours() -> None:
    code, said = told("explain", "--num-samples")
    assert code == 0
    assert "rehearse --rows" in said
    assert "run --batches" in said


def test_a_search_imports_neither_rules_nor_the_readers_of_logs() -> None:
    code = (
        "import sys; from truetune.cli import truetune_group\n"
        "truetune_group.main(['explain', 'loss is flat'], standalone_mode=False)\n"
        "slow = ('numpy', 'rich.markdown', 'truetune.checks.rule', 'truetune.logs.run_log',"
        " 'truetune.report.report_terminal')\n"
        "print([name for name in slow if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "loss-does-not-fall" in done.stdout
    assert done.stderr.strip() == "[]"


PASTED = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.02 GiB. GPU 0 has a total capacity of 23.64 GiB of"
    " which 611.38 MiB is free. {}Including non-PyTorch memory, this process has {} GiB memory in use. Of the allocated"
    " memory {} GiB is allocated by PyTorch, and 136.27 MiB is reserved by PyTorch but unallocated."
)


def test_a_pasted_message_of_a_gpu_that_another_process_holds_is_read_by_its_figures() -> None:
    held = search_topics(PASTED.format("Process 7 has 17.91 GiB memory in use. ", 5.11, 4.52), ALL)
    assert held[0].topic.name == "cuda-out-of-memory"
    assert "other processes hold 17.9 GiB" in held[0].causes[0].text
    assert "end process 7" in held[0].causes[0].text
    small = "Process 7 has 0.90 GiB memory in use. "
    for text in (PASTED.format("", 23.02, 22.1), PASTED.format(small, 22.11, 21.3)):
        assert not any(
            "other processes" in c.text for hit in search_topics(text, ALL) for c in hit.causes
        )


ZERO_LOGPS = "'logps/rejected': 0.0, 'logps/chosen': 0.0"


@pytest.mark.parametrize(
    ("record", "topic", "said"),
    [
        (f"{{'loss': 0.6931, 'rewards/margins': 0.0, {ZERO_LOGPS}}}", "dpo-without-effect", "no token of the answers"),
        ("{'loss': '0.6931', 'logps/rejected': '0', 'logps/chosen': '0'}", "dpo-without-effect", "no token of"),
        ("why? {'loss': 0.0, 'grad_norm': nan, 'epoch': 0.1}", "loss-or-gradient-exactly-zero", "exactly 0"),
        ('{"loss": 0.0, "learning_rate": 1e-5}', "loss-or-gradient-exactly-zero", "exactly 0"),
        ("{'loss': nan, 'grad_norm': nan}", "loss-not-finite", "not a number"),
        ("{'loss': 1.2, 'grad_norm': 0.0} {'loss': 1.3, 'grad_norm': 0.0}", "grad-norm-zero", "no parameter"),
    ],
)  # fmt: skip
def test_a_pasted_record_says_what_its_values_prove(record: str, topic: str, said: str) -> None:
    first = search_topics(record, ALL)[0]
    assert first.topic.name == topic
    assert said in first.causes[0].text


@pytest.mark.parametrize(
    "record",
    [
        "{'loss': 0.6931, 'rewards/margins': 0.0, 'logps/rejected': -112.0, 'logps/chosen': -80.0}",
        "{'loss': 0.0, 'reward': 0.4, 'kl': 0.0, 'grad_norm': 0.2}",
        "{'loss': 1.2, 'grad_norm': 0.0} {'loss': 1.1, 'grad_norm': 0.8}",
        "{'loss': 1.9, 'grad_norm': 1.3, 'learning_rate': 0.0}",
        "TrainingArguments(**{'max_steps': 0, 'warmup_steps': 0})",
    ],
)
def test_a_pasted_record_that_proves_nothing(record: str) -> None:
    assert list_proofs_of_records(record) == []
    causes = [cause for hit in search_topics(record, ALL) for cause in hit.causes]
    assert "logps" not in record or NO_ANSWER_TOKEN not in causes


def test_letters_that_fill_the_limit_are_a_cause_of_dpo_without_effect() -> None:
    question = (
        "dpo loss stays 0.6931 and logps are 0.0, max_length is 512 and my prompts are long letters"
    )
    first = search_topics(question, ALL)[0]
    assert first.causes[0] == NO_ANSWER_TOKEN


@pytest.mark.parametrize(
    "question",
    [
        "DPO rewards/chosen negative and falling, margins grow, accuracy 0.97, answers not better",
        "why does rewards/chosen decrease",
        "rewards/chosen goes down in DPO",
        "chosen likelihood falls in dpo",
        "logps/chosen decreases",
        "log probability of the chosen response drops together with the rejected one",
        "the preferred answers become less likely during dpo",
    ],
)
def test_a_chosen_likelihood_that_falls(question: str) -> None:
    hits = search_topics(question, list_topics())
    guide = next(hit for hit in hits if hit.topic.name == "dpo-without-effect")
    assert "dpo-chosen-falls" in guide.causes[0].rules


@pytest.mark.parametrize(
    "question",
    [
        "dpo loss stuck at 0.693",
        "rewards margins zero",
        "my own dpo loop prints loss 0.6931 at every step",
        "dpo on 56 pairs was over in 2 minutes and nothing changed",
        "vllm answers word for word as after the sft though the dpo curves look great",
    ],
)
def test_a_dpo_without_effect_is_no_chosen_likelihood_that_falls(question: str) -> None:
    (first, *_) = (cause for hit in search_topics(question, list_topics()) for cause in hit.causes)
    assert "dpo-chosen-falls" not in first.rules
