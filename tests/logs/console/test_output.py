"""Console output of whole runs: what ended them is found in any shape, and words of the data are no findings.

The texts are written here in the shapes that public logs have; none is copied.
"""

# ruff: noqa: E501 - lines of logs stand as they are printed
from __future__ import annotations

import json
from pathlib import Path

import pytest

from truetune.checks.diagnose_log import diagnose
from truetune.errors import DataError
from truetune.logs.read_run_log import read_run

BAR = "  2%|▏         | 10/500 [00:12<10:03,  1.23s/it]"
RECORD = "{'loss': 1.92, 'grad_norm': 0.9, 'learning_rate': 2e-05, 'epoch': 0.1}"
DONE = "{'train_runtime': 61.2, 'train_samples_per_second': 4.9, 'train_loss': 2.18, 'epoch': 1.0}"
LIBRARY = (
    '  File "/opt/venv/lib/python3.11/site-packages/transformers/trainer.py", line 2206, in train\n'
    "    return loop("
)
OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 7.83 GiB. GPU 1 has a total"
    " capacity of 23.65 GiB of which 1.06 GiB is free. Including non-PyTorch memory, this process"
    " has 22.58 GiB memory in use. Of the allocated memory 21.90 GiB is allocated by PyTorch, and"
    " 194.87 MiB is reserved by PyTorch but unallocated."
)
CHILD_FAILED = """E1206 18:44:14.620000 2606 site-packages/torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: 1) local_rank: 1 (pid: 2630) of binary: /opt/venv/bin/python
Traceback (most recent call last):
  File "/opt/venv/bin/torchrun", line 8, in <module>
    sys.exit(main())
             ^^^^^^
  File "/opt/venv/lib/python3.11/site-packages/torch/distributed/launcher/api.py", line 269, in launch_agent
    raise ChildFailedError(
torch.distributed.elastic.multiprocessing.errors.ChildFailedError: 
=====================================================
train.py FAILED
-----------------------------------------------------
Failures:
  <NO_OTHER_FAILURES>
-----------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2025-05-21_15:43:03
  rank      : 1 (local_rank: 1)
  exitcode  : 1 (pid: 2630)
====================================================="""


def traceback(error: str, *, file: str = "train.py", line: int = 88) -> str:
    return (
        f'Traceback (most recent call last):\n  File "{file}", line {line}, in <module>\n   '
        f" trainer.train()\n{LIBRARY}\n{error}"
    )


def prefixed(text: str, prefix: str) -> str:
    return "\n".join(prefix + line for line in text.splitlines())


def found(folder: Path, text: str | bytes, name: str = "run.log") -> dict[str, str]:
    """Rule -> its first finding with evidence, cases and remedy, of a run whose output is this text."""
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return {
        finding.rule: "\n".join(
            (
                finding.message,
                finding.remedy,
                *finding.evidence,
                *(case.text for case in finding.cases),
            )
        )
        for finding in reversed(diagnose(path).findings)
    }


ENDED, KILLED, NAMED, STOPS = (
    "run-ended-in-an-exception", "run-was-killed", "fault-named-in-the-output", "output-stops-in-the-middle",
)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param(traceback("IndexError: index out of range in self"), "ids-beyond-the-embedding", id="plain"),
        pytest.param(prefixed(traceback(OOM), "[rank3]: "), "cuda-out-of-memory", id="torchrun's rank"),
        pytest.param(prefixed(traceback(OOM), "[default3]:"), "cuda-out-of-memory", id="torchrun's tee"),
        pytest.param(prefixed(traceback(OOM), "3: "), "cuda-out-of-memory", id="srun --label"),
        pytest.param(prefixed(traceback(OOM), "2025-03-01T10:00:00.123456Z "), "cuda-out-of-memory", id="kubernetes"),
        pytest.param(prefixed(traceback(OOM), "(RayTrainWorker pid=4711, ip=10.0.0.7) "), "cuda-out-of-memory", id="ray"),
        pytest.param(prefixed(traceback(OOM), "trainer-1  | "), "cuda-out-of-memory", id="compose"),
        pytest.param(prefixed(traceback(OOM), "worker-2: "), "cuda-out-of-memory", id="pdsh"),
        pytest.param(prefixed(traceback(OOM), "12.3s\t17\t"), "cuda-out-of-memory", id="kaggle's page"),
        pytest.param("\x1b[31m" + traceback(OOM).replace("\n", "\x1b[0m\n\x1b[31m"), "cuda-out-of-memory", id="colours"),
        pytest.param(BAR + "\r" + BAR + "\n" + traceback(OOM).replace("\n", "\r\n"), "cuda-out-of-memory", id="windows"),
        pytest.param(f"{RECORD}\n{BAR}{traceback(OOM)}", "cuda-out-of-memory", id="behind a bar"),
        pytest.param(traceback("KeyError: 'messages'\n") + "\nDuring handling of the above exception, another exception "
                     "occurred:\n\n" + traceback("RuntimeError: row 3 can't be used"), "column-missing", id="chain"),
        pytest.param(traceback("OSError: You are trying to access a gated repo.\nMake sure to have access to it at x.\n"
                               "401 Client Error."), "gated-or-private-repository", id="lines in a message"),
        pytest.param(traceback("RuntimeError: Caught KeyError in DataLoader worker process 0.\nOriginal " +
                               traceback("KeyError: 'input_ids'")), "column-missing", id="DataLoader"),
        pytest.param("multiprocess.pool.RemoteTraceback: \n\"\"\"\n" + traceback("TypeError: can only concatenate str (not "
                     "\"NoneType\") to str") + "\n\"\"\"\n\nThe above exception was the direct cause of the following "
                     "exception:\n\n" + traceback("TypeError: can only concatenate str (not \"NoneType\") to str"),
                     "text-that-is-no-text", id="pool"),
        pytest.param(prefixed(traceback(OOM), "[rank1]: ") + "\n[rank0]:[E1206 18:44:12.7 ProcessGroupNCCL.cpp:607] [Rank 0] "
                     "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7753)\n" + CHILD_FAILED,
                     "cuda-out-of-memory", id="launcher behind it"),
        pytest.param("Traceback (most recent call last):\n[rank1]: Traceback (most recent call last):\n"
                     '  File "train.py", line 1, in <module>\n[rank1]:   File "b.py", line 2, in <module>\n    f()\n'
                     "[rank1]:     g()\nRuntimeError: CUDA error: device-side assert triggered\n[rank1]: RuntimeError: "
                     "CUDA error: device-side assert triggered", "device-side-assert", id="two ranks mixed"),
        pytest.param("../aten/src/ATen/native/cuda/Indexing.cu:1290: indexSelectLargeIndex: block: [97,0,0], thread: [3,0,0] "
                     "Assertion `srcIndex < srcSelectDimSize` failed.\n"
                     + traceback("RuntimeError: CUDA error: device-side assert triggered"),
                     "ids-beyond-the-embedding-on-the-gpu", id="assertion before it"),
        pytest.param("╭───────────────────── Traceback (most recent call last) ─────────────────────╮\n"
                     "│ /home/me/train.py:12 in main                                                │\n"
                     "│ ❱ 12     trainer.train()                                                    │\n"
                     "╰─────────────────────────────────────────────────────────────────────────────╯\n"
                     "ValueError: Attempting to unscale FP16 gradients.", "unscale-fp16", id="rich"),
        pytest.param("---------------------------------------------------------------------------\n"
                     "ZeroDivisionError                         Traceback (most recent call last)\n"
                     "/tmp/ipython-input-86.py in <cell line: 0>()\n      1 from x import y\n----> 2 trainer = y(\n"
                     "      3     trainer,\n\nZeroDivisionError: Unsloth: All labels in your dataset are -100. Training "
                     "losses will be all 0.", "all-labels-masked", id="notebook"),
        pytest.param("Training failed: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 15.78 GiB total capacity; "
                     "13.10 GiB already allocated; 1.20 GiB free; 13.90 GiB reserved in total by PyTorch)",
                     "cuda-out-of-memory", id="caught and printed"),
        pytest.param("2025-03-01 10:00:00,123 - train - ERROR - No space left on device (os error 28)", "disk-full",
                     id="caught and logged"),
        pytest.param("torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB", "cuda-out-of-memory",
                     id="no traceback"),
        pytest.param("usage: train.py [-h]\ntrain.py: error: unrecognized arguments: --max_seq_len", "argument-removed",
                     id="argparse"),
        pytest.param('  + Exception Group Traceback (most recent call last):\n  |   File "a.py", line 3, in <module>\n  |     f()\n'
                     "  | ExceptionGroup: many (1 sub-exception)\n  +-+---------------- 1 ----------------\n"
                     '    | Traceback (most recent call last):\n    |   File "a.py", line 9, in g\n    |     h()\n'
                     "    | ValueError: Attempting to unscale FP16 gradients.\n    +-----------", "unscale-fp16", id="group"),
        pytest.param("torch.multiprocessing.spawn.ProcessRaisedException: \n\n-- Process 1 terminated with the following "
                     "error:\n" + traceback("RuntimeError: Found no NVIDIA driver on your system."), "no-gpu-found", id="spawn"),
        pytest.param(traceback("RuntimeError: mat1 and mat2 shapes cannot be multiplied (3x4 and 1x9)") + "\nwandb: \n" +
                     "wandb: Run summary:\n" * 60, "matrix-shapes", id="wandb behind it"),
    ],
)  # fmt: skip
def test_what_ended_the_run(tmp_path: Path, text: str, said: str) -> None:
    assert f"known as {said} " in found(tmp_path, f"{RECORD}\n{text}\n")[ENDED]


def test_an_unknown_exception_is_a_finding_with_its_place(tmp_path: Path) -> None:
    said = found(
        tmp_path, traceback("mylib.errors.Odd: seventeen", file="/home/ann/src/loop.py", line=17)
    )[ENDED]
    assert "mylib.errors.Odd: seventeen" in said
    assert "/home/ann/src/loop.py:17" in said
    assert "truetune lint /home/ann/src/loop.py" in said


BY_HAND = traceback("KeyboardInterrupt")


@pytest.mark.parametrize(
    "text",
    [
        BY_HAND,
        "^C" + BY_HAND,
        "^C^C" + BY_HAND,
        f"{BAR}^C{BY_HAND}",
        prefixed(BY_HAND, "[rank0]: ") + "\n" + prefixed(BY_HAND, "[rank1]: "),
        traceback("ValueError: not yet\n") + "\nDuring handling of the above exception, another exception occurred:\n\n" + BY_HAND,
        BY_HAND + "\n" + traceback("torch.distributed.elastic.multiprocessing.api.SignalException: Process 7 got signal: 2"),
        "KeyboardInterrupt",
    ],
    ids=["plain", "echoed", "twice", "behind a bar", "two ranks", "while handling", "launcher", "bare"],
)  # fmt: skip
def test_a_run_that_its_user_stopped_is_a_note(tmp_path: Path, text: str) -> None:
    path = tmp_path / "run.log"
    path.write_text(f"{RECORD}\n{text}\n")
    findings = [finding for finding in diagnose(path).findings if finding.rule == ENDED]
    assert [finding.severity for finding in findings] == ["info"]
    # A record that names no step is one of many steps: only the bar counts these.
    place = "after step" if BAR in text else "after record 1"
    assert findings[0].message.startswith(f"the run was stopped by hand {place}")
    assert "faulthandler" not in findings[0].remedy


def test_a_failure_that_left_others_hanging_is_the_cause(tmp_path: Path) -> None:
    ranks = prefixed(BY_HAND, "[rank0]: ") + "\n" + prefixed(traceback(OOM), "[rank1]: ")
    assert "known as cuda-out-of-memory " in found(tmp_path, f"{RECORD}\n{ranks}\n")[ENDED]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (
            (
                '  File "/home/ann/train.py", line 12\n    print("x"\n         ^\nSyntaxError:'
                " '(' was never closed"
            ),
            "/home/ann/train.py:12",
        ),
        (
            '  File "/home/ann/train.py", line 3\n    x = 1\nIndentationError: unexpected indent',
            "/home/ann/train.py:3",
        ),
        (
            (
                '  File "/home/ann/loop.py", line 88, in step\n    f(x)\nmylib.errors.OddError: cut'
                " off above"
            ),
            "/home/ann/loop.py:88",
        ),
        (
            traceback("SyntaxError: invalid syntax", file="/home/ann/a.py", line=5),
            "/home/ann/a.py:5",
        ),
    ],
    ids=["syntax", "indentation", "the top is cut off", "syntax of an import"],
)
def test_an_exception_without_a_header_has_its_place(tmp_path: Path, text: str, place: str) -> None:
    said = found(tmp_path, f"{RECORD}\n{text}\n")[ENDED]
    assert place in said
    assert "faulthandler" not in said


def test_an_exception_without_frames_asks_for_them(tmp_path: Path) -> None:
    assert "faulthandler" in found(tmp_path, f"{RECORD}\nmylib.OddError: seventeen\n")[ENDED]


OFFLOADED = "Some parameters are on the meta device because they were offloaded to the cpu.\n"


@pytest.mark.parametrize(
    "text",
    [
        OFFLOADED,
        f"$ python ask.py\nLoading checkpoint shards: 100%|██| 2/2\n{OFFLOADED}[1/9] 7.1 s\n",
    ],
)
def test_a_log_of_a_generation_is_not_called_a_training(tmp_path: Path, text: str) -> None:
    (tmp_path / "ask.log").write_text(f"{text}^C{BY_HAND}\n")
    report = diagnose(tmp_path / "ask.log")
    facts = dict(report.subjects[0].facts)
    assert facts["records of a training"] == "none"
    assert "trains" not in facts
    assert "steps" not in facts
    assert [(finding.rule, finding.severity) for finding in report.findings] == [
        (NAMED, "warning"),
        (ENDED, "info"),
    ]


@pytest.mark.parametrize(
    "line",
    [
        "answer: Some parameters are on the meta device because they were offloaded to the cpu.",
        "All parameters are on cuda:0, none were offloaded to the cpu.",
        "cpu_offload: false, offload_folder: null",
        "`use_fast` is set; the fast path is available",
        "find_unused_parameters=False",
        (
            "INFO 11-25 08:00:42 [gpu_model_runner.py:500] Graph capturing finished in 12 secs,"
            " took 0.61 GiB"
        ),
        (
            "Capturing CUDA graphs (mixed prefill-decode, PIECEWISE): 100%|██████████| 67/67"
            " [00:04<00:00, 14.1it/s]"
        ),
        "DDP(find_unused_parameters=True)",
        "merge lora module to 4-bit linear: no",
    ],
)
def test_healthy_lines_on_speed_are_silent(tmp_path: Path, line: str) -> None:
    assert found(tmp_path, f"{line}\n{RECORD}\n{DONE}\n") == {}


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        (OOM, ("--gpu 24GB", "one tensor of 7.8 GiB")),
        (OOM.replace("7.83 GiB", "20.00 MiB").replace("194.87 MiB", "9.10 GiB"), ("expandable_segments",)),
        (OOM.replace("22.58 GiB", "2.58 GiB"), ("other processes hold 20.0 GiB",)),
        ("RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 79.15 GiB total capacity; 70.10 GiB already "
         "allocated; 1.20 GiB free; 77.90 GiB reserved in total by PyTorch)", ("--gpu 80GB", "7.8 GiB held by PyTorch")),
    ],
)  # fmt: skip
def test_the_numbers_of_out_of_memory(tmp_path: Path, numbers: str, said: tuple[str, ...]) -> None:
    text = found(tmp_path, traceback(numbers))[ENDED]
    assert [part for part in said if part not in text] == []


@pytest.mark.parametrize(
    "end",
    [
        "Killed",
        "./run.sh: line 3:  4711 Killed                  python train.py",
        "slurmstepd: error: Detected 1 oom_kill event in StepId=4711.batch.",
        (
            "slurmstepd: error: *** JOB 4711 ON node1 CANCELLED AT 2025-03-01T10:00:00 DUE TO TIME"
            " LIMIT ***"
        ),
        (
            "[rank0]:[E626 06:24:44.9 ProcessGroupNCCL.cpp:616] [Rank 0] Watchdog caught collective"
            " operation timeout: WorkNCCL("
        ),
        "Segmentation fault (core dumped)",
        (
            "[2024-05-01 10:00:00,123] [ERROR] [launch.py:325:sigkill_handler] ['python3',"
            " 'train.py'] exits with return code = -9"
        ),
        "./run.sh: line 4: torchrun: command not found",
    ],
)
def test_what_killed_the_run(tmp_path: Path, end: str) -> None:
    assert set(found(tmp_path, f"{RECORD}\n{BAR}\n{end}\n")) == {KILLED}


def test_a_killed_process_behind_a_launcher(tmp_path: Path) -> None:
    text = CHILD_FAILED.replace("exitcode: 1", "exitcode: -9").replace(
        "exitcode  : 1", "exitcode  : -9"
    )
    said = "\n".join(found(tmp_path, f"{RECORD}\n{text}\n").values())
    assert "known as killed" in said


@pytest.mark.parametrize(
    "text",
    [
        (
            f"{RECORD}\nprompt: CUDA out of memory. Tried to allocate 2 GiB, what"
            f" now?\n{RECORD}\n{DONE}\n"
        ),
        (
            f"sample of the data:\n{traceback(OOM)}\nanswer: fewer rows at a"
            f" time\n{RECORD}\n{RECORD}\n{RECORD}\n{DONE}\n"
        ),
        (
            f"{RECORD}\n{{'messages': [{{'role': 'user', 'content': 'IndexError: index out of range"
            f" in self'}}]}}\n{DONE}\n"
        ),
        f"{RECORD}\n{DONE}\nanswer: He was Killed in action\n",
        (
            f"{RECORD}\nException ignored in: <function Worker.__del__ at"
            f" 0x7f>\n{traceback('AttributeError: gone')}\n{DONE}\n"
        ),
        f"{RECORD}\nKilled\n{RECORD}\n{RECORD}\n{RECORD}\n{DONE}\n",
        f"inputs:\n'Some weights of LlamaForCausalLM were not initialized'\n{RECORD}\n{DONE}\n",
    ],
    ids=[
        "words",
        "a traceback in a row",
        "a row as json",
        "a word behind the end",
        "ignored",
        "an earlier run",
        "quoted",
    ],
)
def test_words_of_the_data_are_no_alarm(tmp_path: Path, text: str) -> None:
    path = tmp_path / "run.log"
    path.write_text(text)
    assert [finding.rule for finding in diagnose(path).findings if finding.severity != "info"] == []


def test_notices_are_counted_once(tmp_path: Path) -> None:
    line = (
        "/opt/venv/lib/python3.11/site-packages/torch/utils/checkpoint.py:92: UserWarning: None of"
        " the inputs have requires_grad=True. Gradients will be None"
    )
    (tmp_path / "a.log").write_text(f"{line}\n{RECORD}\n{line}\n{DONE}\n")
    findings = diagnose(tmp_path / "a.log").findings
    assert [(finding.rule, finding.severity, finding.count) for finding in findings] == [
        (NAMED, "warning", 2)
    ]


@pytest.mark.parametrize(("flushes", "is_found"), [(40, True), (12, True), (11, False), (1, False)])
def test_flushes_are_a_fault_at_many_steps_alone(
    tmp_path: Path, flushes: int, is_found: bool
) -> None:
    line = "[2026-10-02 08:17:13,950] [WARNING] [stage3.py:2157:step] 3 pytorch allocator cache flushes since last step."
    with (tmp_path / "a.log").open("w") as file:
        for step in range(48):
            if step < flushes:
                print(line, file=file)
            loss = 2.5 - 0.01 * step + 0.1 * (step % 3)
            print({"loss": loss, "learning_rate": 1e-5, "step": step + 1}, file=file)
    named = [one.message for one in diagnose(tmp_path / "a.log").findings if one.rule == NAMED]
    assert ["memory is at its limit" in message for message in named] == [True] * is_found


def test_an_output_that_stops(tmp_path: Path) -> None:
    assert found(tmp_path, f"{RECORD}\n{BAR}\n")[STOPS].startswith(
        "the log stops at step 10 of 500"
    )
    assert STOPS not in found(tmp_path, f"{RECORD}\n{BAR.replace('10/500', '500/500')}\n{DONE}\n")


@pytest.mark.parametrize(
    ("text", "steps", "losses"),
    [
        (f"{BAR}\n{RECORD}\n{BAR}\n{BAR.replace('10/', '20/')}\n\n{RECORD}\n{BAR.replace('10/', '20/')}\n", [10, 20], 2),
        (f"{RECORD}\n 12%|█▏        | 60/500 [01:12<10:03,  1.23s/it]\n", [60], 1),
        ("[INFO|2025-03-01 10:00:00] llamafactory.train.callbacks:143 >> {'loss': 1.5, 'learning_rate': 5e-05, 'epoch': 0.1}\n",
         [1], 1),
        ("[2025-03-01 10:00:00,123] [INFO] [axolotl.train.log:61] [PID:17] [RANK:0] {'loss': '1.5', 'epoch': '0.1'}\n", [1], 1),
        ("iter 100: loss 2.31, time 12.00ms\niter 200: loss 2.11, time 12.00ms\n", [100, 200], 2),
        ("step 250: train loss 1.90, val loss 2.10\n", [250], 1),
        ("Epoch 1/3, Step 10/90, Loss: 2.31, LR: 2e-5\n", [10], 1),
        ("Epoch 1:  20%|██        | 20/100 [00:01<00:05, 15.20it/s, v_num=0, train_loss=2.31]\n", [120], 1),
        ("Step\tTraining Loss\n10\t2.310000\n20\t2.110000\n", [10, 20], 2),
        ("1|10|Loss: 2.31\nStep 3 | loss:2.2 lr:2e-5\n", [3], 1),
    ],
)  # fmt: skip
def test_numbers_are_read_as_the_log(
    tmp_path: Path, text: str, steps: list[float], losses: int
) -> None:
    path = tmp_path / "out"
    path.write_text(text)
    curve = read_run(path).curve("loss")
    assert curve.step.tolist() == steps
    assert curve.value.size == losses


@pytest.mark.parametrize(
    "name", ["nohup.out", "slurm-4711.out", "train.err", "stderr", "run.log.1", "log"]
)
def test_any_name(tmp_path: Path, name: str) -> None:
    assert ENDED in found(tmp_path, traceback(OOM), name)


def test_bytes_that_are_no_text_and_utf_16(tmp_path: Path) -> None:
    assert ENDED in found(
        tmp_path, b"\xff\x00\xfe broken \x80\n" + traceback(OOM).encode() + b"\n\xc3"
    )
    assert ENDED in found(tmp_path, b"\xff\xfe" + traceback(OOM).encode("utf-16-le"), "b.log")


def test_outputs_of_notebooks_and_of_kaggle(tmp_path: Path) -> None:
    text = traceback(OOM)
    cells = [
        {
            "cell_type": "code",
            "outputs": [
                {"output_type": "stream", "text": [RECORD + "\n"]},
                {
                    "output_type": "error",
                    "ename": "x",
                    "evalue": "y",
                    "traceback": text.splitlines(),
                },
            ],
        }
    ]
    assert ENDED in found(tmp_path, json.dumps({"nbformat": 4, "cells": cells}), "train.ipynb")
    parts = [
        {"stream_name": "stderr", "time": 1.5, "data": line + "\n"} for line in text.splitlines()
    ]
    assert ENDED in found(tmp_path, json.dumps(parts), "kaggle.json")


def test_output_beside_a_trainer_state(tmp_path: Path) -> None:
    state = tmp_path / "checkpoint-10" / "trainer_state.json"
    state.parent.mkdir()
    state.write_text(json.dumps({"log_history": [{"step": 10, "loss": 2.0}], "max_steps": 100}))
    (tmp_path / "train.log").write_text(traceback(OOM))
    report = diagnose(tmp_path)
    assert {finding.rule for finding in report.findings} == {ENDED}
    assert "after step 10" in report.findings[0].message


def test_a_text_that_is_no_log(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("Buy milk.\n")
    with pytest.raises(DataError, match="nor a traceback or progress"):
        read_run(tmp_path / "notes.txt")


@pytest.mark.parametrize(
    ("losses", "is_at_once"),
    [
        ("2.7 nan nan nan nan nan", True),
        ("2.7 2.6 2.6 nan nan nan", False),
        ("nan nan nan nan nan nan", False),
        ("2.7 nan 2.6 2.6 2.5 2.5", False),
    ],
)
def test_the_first_update_made_the_weights_nan(
    tmp_path: Path, losses: str, *, is_at_once: bool
) -> None:
    lines = (f"step {step} loss {loss}" for step, loss in enumerate(losses.split()))
    text = found(tmp_path, "\n".join(lines) + "\n")["loss-not-finite"]
    assert ("1e-8 is 0" in text) is is_at_once


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("/usr/lib/python3.11/multiprocessing/heap.py", "shared-memory-too-small"),
        ("/usr/lib/python3.11/multiprocessing/synchronize.py", "shared-memory-too-small"),
        ("/opt/venv/lib/python3.11/site-packages/torch/serialization.py", "disk-full"),
    ],
)
def test_shared_memory_that_is_full_is_no_full_disk(tmp_path: Path, file: str, name: str) -> None:
    output = (
        'Traceback (most recent call last):\n  File "train.py", line 9, in <module>\n    run()\n'
        f'  File "{file}", line 77, in __init__\n    os.ftruncate(fd, size)\n'
        "OSError: [Errno 28] No space left on device\n"
    )
    assert f"known as {name}" in found(tmp_path, output)[ENDED]


@pytest.mark.parametrize(
    ("falls_by", "norm", "severity"),
    [(0.02, 0.9, "info"), (0.0, 0.9, "warning"), (0.02, 0.0, "warning")],
)
def test_inputs_without_gradients_are_a_note_where_the_run_learns(
    falls_by: float, norm: float, severity: str, tmp_path: Path
) -> None:
    records = "\n".join(
        f"{{'loss': {2.0 - falls_by * step:.4f}, 'grad_norm': {norm}, 'learning_rate': 2e-05, 'epoch': {step / 40}}}"
        for step in range(40)
    )
    path = tmp_path / "run.log"
    path.write_text(
        f"None of the inputs have requires_grad=True. Gradients will be None\n{records}\n{DONE}\n"
    )
    findings = diagnose(path).findings
    assert [one.severity for one in findings if one.code == "LOG032"] == [severity]
