"""What an output tells besides its end: networks, schedulers, processes that part, offloading, servers, steps."""

# ruff: noqa: E501 - lines of logs stand as they are printed
from __future__ import annotations

from pathlib import Path

import pytest

from tests.logs.console.test_output import KILLED, NAMED, RECORD, found
from truetune.checks.diagnose_log import diagnose
from truetune.logs.read_run_log import read_run

UNREACHED = "gpu-a18:26:27 [0] misc/socket.cc:457 NCCL WARN socketStartConnect: Connect to 172.17.0.1<48913> failed : Connection refused\n"
CANCELLED = "slurmstepd: error: *** JOB 48213 ON gpu-a17 CANCELLED AT 2025-10-03T06:14:52{} ***\n"
APART, OFFLOAD = "ranks-hold-different-weights", "offload-without-need"


def test_what_stands_before_a_cancelled_job_is_the_story(tmp_path: Path) -> None:
    rules = found(tmp_path, 3 * UNREACHED + CANCELLED.format(""))
    assert "cancelled, and no reason is printed" in rules[KILLED]
    assert "before it, from line 1 on, 3 times" in rules[KILLED]
    assert "NCCL_SOCKET_IFNAME" in rules[NAMED]
    assert "at its time limit" not in rules[KILLED]


@pytest.mark.parametrize(
    ("reason", "title"),
    [
        (" DUE TO TIME LIMIT", "at its time limit"),
        (" DUE TO PREEMPTION", "took the machine back"),
        (" DUE TO NODE FAILURE", "a machine of the job failed"),
        ("", "no reason is printed"),
    ],
)
def test_the_scheduler_s_reason_is_said(tmp_path: Path, reason: str, title: str) -> None:
    assert title in found(tmp_path, f"{RECORD}\n{CANCELLED.format(reason)}")[KILLED]


def test_an_interface_of_containers_is_a_note_on_one_machine(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_text(
        f"n:1:1 [0] NCCL INFO Bootstrap: Using docker0:172.17.0.1<0>\n{RECORD}\n{RECORD}\n"
    )
    assert [finding.severity for finding in diagnose(path).findings] == ["info"]


@pytest.mark.parametrize("form", ["[rank {rank}] step {step} loss {loss} wsum {value}", "step={step} rank={rank} loss={loss} param_norm={value}",
                                  "[rank{rank}]: epoch 0 step {step} loss {loss} checksum: {value}",
                                  "[rank {rank}] epoch 0 step {step}/300 loss {loss} gn {value}"])  # fmt: skip
def test_processes_whose_weights_part(tmp_path: Path, form: str) -> None:
    def lines(apart: float) -> str:
        return "\n".join(
            form.format(rank=rank, step=step, loss=2 - step / 100 + rank / 50, value=round(817 + step / 10 + apart * rank * step, 4))
            for step in range(10, 80, 10) for rank in range(3)
        )  # fmt: skip

    assert "gradients are not averaged" in found(tmp_path, lines(0.01))[APART]
    assert APART not in found(tmp_path, lines(0.0))
    assert APART not in found(tmp_path, "FullyShardedDataParallel(\n" + lines(0.01))


def test_losses_of_several_processes_are_those_of_one(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_text(
        "\n".join(
            f"[rank {rank}] epoch 0 step {step} loss {2 - step / 100 + rank}"
            for step in range(10, 60, 10)
            for rank in range(4)
        )
    )
    log = read_run(path)
    assert log.curve("loss").value.tolist() == pytest.approx([1.9, 1.8, 1.7, 1.6, 1.5])
    assert any("other processes than rank 0" in note for note in log.notes)


def offloaded(trained: str, parameters: str, line: str) -> str:
    bar = "  1%|          | 1/150 [00:41<101:49, 41.57s/it]"
    return f"trainable params: {trained} || all params: {parameters} || trainable%: 1.1\n{line}\n{RECORD}\n{bar}\n"


def test_offloading_without_need(tmp_path: Path) -> None:
    cpu_adam = "Loading extension module cpu_adam..."
    text = found(tmp_path, offloaded("18,464,768", "1,562,179,072", cpu_adam))[OFFLOAD]
    assert "take 3.2 GiB; a step takes 42 s" in text
    assert OFFLOAD not in found(tmp_path, offloaded("83,886,080", "70,553,706,496", cpu_adam))
    plain = "Parameter Offload: Total persistent parameters: 593920 in 337 params"  # every ZeRO-3 run prints it
    assert OFFLOAD not in found(tmp_path, offloaded("18,464,768", "1,562,179,072", plain))


@pytest.mark.parametrize(
    ("lines", "server"),
    [
        ("INFO 11-04 14:02:09 [api_server.py:1395] vLLM API server version 0.9.1\nINFO 11-04 [cli_args.py:309] non-default args: {'max_model_len': 32768, 'max_num_seqs': 256}\nWARNING 11-04 14:03:00 [kv_cache_utils.py:712] Maximum concurrency for 32,768 tokens per request: 0.30x\n", "vLLM"),
        ("llama_model_loader: loaded meta data with 29 key-value pairs\nmain: server is listening on http://127.0.0.1:8080\n{'n_ctx': 4096, 'n_batch': 512}\n", "llama.cpp"),
    ],
)  # fmt: skip
def test_the_log_of_a_server_is_no_training(tmp_path: Path, lines: str, server: str) -> None:
    path = tmp_path / "server.log"
    path.write_text(lines)
    facts = dict(diagnose(path).subjects[0].facts)
    assert server in facts["serves"]
    assert "trains" not in facts


def test_a_training_beside_an_engine_trains(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_text(f"INFO [api_server.py:1] vLLM API server version 0.9.1\n{RECORD}\n{RECORD}\n")
    assert "trains" in dict(diagnose(path).subjects[0].facts)


def test_records_between_two_drawings_of_a_bar_keep_their_steps(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    lines = []
    for step in range(1, 41):
        lines.append(f"{{'loss': {2 - step / 50:.3f}, 'grad_norm': 0.5, 'learning_rate': 1e-5}}")
        if step % 10 == 0:
            lines.append(f" {step}%|█   | {step}/100 [04:00<1:00:00, 12.01s/it]")
    path.write_text("\n".join(lines))
    log = read_run(path)
    assert log.curve("loss").step.tolist() == list(range(1, 41))
    assert log.planned_steps == 100


def test_steps_that_are_skipped_at_first_are_normal(tmp_path: Path) -> None:
    line = "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, reducing to 32768\n"
    assert NAMED not in found(tmp_path, 10 * line + f"{RECORD}\n{RECORD}\n")
    assert "bf16" in found(tmp_path, 30 * line + f"{RECORD}\n{RECORD}\n")[NAMED]


@pytest.mark.parametrize(
    "text",
    [
        "Answer: set NCCL_SOCKET_IFNAME when NCCL WARN Connect to 10.0.0.1<4> failed appears",
        "question: why is my job CANCELLED AT night?",
        "row 17: Cannot flatten integer dtype tensors, what does it mean",
        "label_smoothing is explained in chapter 3",
    ],
)
def test_words_in_rows_are_no_findings(tmp_path: Path, text: str) -> None:
    rules = found(tmp_path, f"{RECORD}\n{text}\n{RECORD}\n{RECORD}\n")
    assert NAMED not in rules
    assert KILLED not in rules
