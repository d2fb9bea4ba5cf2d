"""Findings of several files of one check: what one file proves corrects the advice of another."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from truetune.checks.correct_findings_by_other_files import reconcile_findings
from truetune.checks.findings import Case, Finding
from truetune.logs.run_log import Curve, RunLog

STEPPED = Finding(
    "prepared-schedule-length-divided-by-processes",
    "SRC014",
    "error",
    "the schedule is as long as the prepared loader",
    "multiply its length by accelerator.num_processes",
    cases=(Case("total", file="train.py", line=7),),
)
ENDED = Finding(
    "learning-rate-ended-early", "LOG012", "error", "the learning rate is 0", "build the schedule"
)
SWITCHED = Finding(
    "nccl-transport-switched-off",
    "CMD045",
    "info",
    "NCCL_P2P_DISABLE=1: GPUs of one node pass gradients through the host's memory",
    "remove NCCL_P2P_DISABLE",
)
CROSSED = Finding(
    "gradients-cross-a-slow-network",
    "LOG066",
    "info",
    "GPUs of one node pass gradients through the host's memory: NCCL_P2P_DISABLE is set",
    "unset NCCL_P2P_DISABLE",
)
WAITS = Finding(
    "server-cap-makes-requests-wait",
    "LOG064",
    "warning",
    "it works on 1 at a time: OLLAMA_NUM_PARALLEL is 1",
    "set OLLAMA_NUM_PARALLEL",
)
ON_CPU = Finding(
    "fault-named-in-the-output",
    "LOG032",
    "warning",
    "layers are on the CPU",
    "a shorter context",
    evidence=("known as layers-left-on-the-cpu",),
)
DICTIONARY = Finding(
    "apply-chat-template-returns-dict",
    "SRC010",
    "error",
    "apply_chat_template returns a dictionary",
    "set return_dict=False in this call",
    evidence=(
        "this raises an exception",
        "no file here says which release of transformers is used",
    ),
    cases=(Case("head + tail", file="train.py", line=3),),
)


def run(steps: int) -> RunLog:
    """A log with so many steps."""
    return RunLog(
        "train.log", "JSONL", curves={"loss": Curve(np.array([1.0, steps]), np.array([2.0, 1.0]))}
    )


def test_the_help_of_a_rate_that_ended_is_that_of_the_script() -> None:
    _, ended = reconcile_findings([STEPPED, ENDED], [], None)
    assert ended.remedy == "multiply its length by accelerator.num_processes (train.py:7)"
    assert reconcile_findings([ENDED], [], None) == (ENDED,)


def test_a_variable_whose_effect_the_log_shows_is_a_warning() -> None:
    switched, crossed = reconcile_findings([SWITCHED, CROSSED], [], None)
    assert switched.severity == "warning"
    assert crossed.message in switched.evidence[-1]
    assert reconcile_findings([SWITCHED], [], None)[0].severity == "info"
    other = replace(CROSSED, message="the nodes use InfiniBand without GPUDirect RDMA")
    assert reconcile_findings([SWITCHED, other], [], None)[0].severity == "info"


def test_no_slots_are_advised_where_layers_are_on_the_cpu() -> None:
    assert reconcile_findings([WAITS, ON_CPU], [], None) == (ON_CPU,)
    assert WAITS in reconcile_findings([WAITS], [], None)
    vllm = replace(WAITS, message="it works on 2 at a time: max_num_seqs is 2")
    assert vllm in reconcile_findings([vllm, ON_CPU], [], None)


@pytest.mark.parametrize(
    ("finding", "logs", "severity"),
    [
        (DICTIONARY, [run(490)], "info"),
        (DICTIONARY, [], "error"),
        (DICTIONARY, [run(2)], "error"),
        (DICTIONARY, [run(490), run(80)], "error"),
        (replace(DICTIONARY, evidence=("its len() is 2",)), [run(490)], "error"),
        (replace(DICTIONARY, cases=(Case("len(head)", file="t.py", line=3),)), [run(490)], "error"),
    ],
)
def test_a_line_that_would_stop_is_a_note_where_the_run_made_its_steps(
    finding: Finding, logs: list[RunLog], severity: str
) -> None:
    (judged,) = reconcile_findings([finding], logs, None)
    assert judged.severity == severity


FULL = Finding(
    "run-ended-in-an-exception",
    "LOG030",
    "error",
    "the run ended in an exception: the GPU's memory is too small for this step",
    "first set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True; lower batch_size from 4 to 2",
    evidence=(
        "try PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
        "a layer without it: the model is in eval() mode, or use_cache or a wrapper switches it off",
        "known as cuda-out-of-memory (truetune explain cuda-out-of-memory)",
    ),
)
EVAL = Finding(
    "trained-in-eval-mode",
    "SRC074",
    "warning",
    "the model stays in eval() mode",
    "call model.train()",
    cases=(Case("model.eval()", file="a/train.py", line=65),),
)


def test_a_fault_that_fills_the_memory_comes_before_the_error_and_leads_its_help() -> None:
    first, second = reconcile_findings([FULL, EVAL], [], None)
    assert (first.rule, first.severity) == ("trained-in-eval-mode", "error")
    assert second.remedy == "call model.train() (train.py:65): see trained-in-eval-mode"
    assert not any("PYTORCH_CUDA_ALLOC_CONF" in one for one in second.evidence)


@pytest.mark.parametrize(
    "findings",
    [
        [FULL],
        [replace(FULL, evidence=FULL.evidence[2:]), EVAL],
        [replace(FULL, evidence=FULL.evidence[:2]), EVAL],
        [FULL, replace(EVAL, rule="rows-padded-to-a-fixed-length")],
        [FULL, replace(EVAL, rule="settings-never-passed")],
    ],
    ids=["alone", "no eval mode", "no full memory", "no padding", "no adapter"],
)
def test_errors_without_a_proved_cause_keep_their_help(findings: list[Finding]) -> None:
    assert list(reconcile_findings(findings, [], None)) == findings


ROW_BY_ROW = Finding(
    "generation-row-by-row",
    "SRC043",
    "info",
    "the server is asked on one row at a time, in a loop",
    "gather",
)
ASKED = Finding(
    "server-asked-one-by-one", "LOG040", "info", "60 reports say Running: 1", "send some 32"
)
WITHOUT_CACHE = Finding(
    "kv-cache-left-off",
    "SRC044",
    "warning",
    "a callback generates while the model trains",
    "eval()",
)
TURNED_OFF = Finding(
    "fault-named-in-the-output",
    "LOG032",
    "info",
    "the output says: the cache is turned off because of gradient checkpointing",
    "eval()",
    cases=(Case("Caching is incompatible with gradient checkpointing", file="a/run.log", line=23),),
)


def test_a_loop_that_asks_row_by_row_has_the_reports_of_the_server() -> None:
    (loop, _) = reconcile_findings([ROW_BY_ROW, ASKED], [], None)
    assert loop.severity == "warning"
    assert loop.evidence == ("the server's log shows it: 60 reports say Running: 1",)
    (alone,) = reconcile_findings([ROW_BY_ROW], [], None)
    assert alone == ROW_BY_ROW


def test_a_generation_without_its_cache_has_the_line_of_the_log() -> None:
    (generation, _) = reconcile_findings([WITHOUT_CACHE, TURNED_OFF], [], None)
    assert generation.evidence[0].startswith(
        "the log says it (run.log:23): Caching is incompatible"
    )
    assert reconcile_findings([WITHOUT_CACHE], [], None) == (WITHOUT_CACHE,)


def test_what_a_log_of_pairs_proves_of_the_rows_and_of_the_reference() -> None:
    dropped = "TRL 1.16.0 silently drops rows without a label"
    empty = Finding(
        "truncation-leaves-no-label", "LEN004", "warning", "48 of 48", "raise", (dropped, "kept")
    )
    bare = Finding("reference-lacks-the-sft-adapter", "SRC215", "warning", "the bare base", "merge")
    zero = "every log-probability of the answers is exactly 0 over 18 records"
    stuck = Finding("dpo-stuck-at-ln2", "LOG024", "error", zero, "raise max_length")
    first = Finding("rewards-not-zero-at-first", "LOG051", "warning", "rewards are 4.91", "merge")
    cut, reference, *_ = reconcile_findings([empty, bare, stuck, first], [], None)
    assert (cut.severity, cut.evidence) == ("error", ("kept",))
    assert (reference.severity, reference.evidence) == (
        "error",
        ("the log shows it: rewards are 4.91",),
    )
    assert reconcile_findings([empty, bare], [], None) == (empty, bare)
