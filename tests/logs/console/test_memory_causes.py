"""Out of memory: what the traceback, the printed settings and the curve of memory show, and what is not advised."""

# ruff: noqa: E501 - lines of logs stand as they are printed
from __future__ import annotations

from pathlib import Path

import pytest

from tests.logs.console.test_output import ENDED, found, traceback
from truetune.logs.console.out_of_memory_message import parse_memory_error

SITE = "/opt/venv/lib/python3.11/site-packages"
ASKED = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.96 GiB. GPU 0 has a total capacity of 23.65 GiB of which 1.20 GiB is free. "
IN_USE = "Of the allocated memory 21.60 GiB is allocated by PyTorch, and 402.11 MiB is reserved by PyTorch but unallocated."
OWN = "Including non-PyTorch memory, this process has 22.44 GiB memory in use. "
RESULT = "{'loss': 1.9, 'grad_norm': 0.9, 'learning_rate': 2e-05, 'epoch': 0.1}"


def failed(
    *frames: tuple[str, str, str], before: str = "", error: str = ASKED + OWN + IN_USE
) -> str:
    """A traceback with frames of file, function and source line."""
    text = 'Traceback (most recent call last):\n  File "train.py", line 40, in <module>\n    trainer.train()\n'
    for file, function, code in frames:
        text += f'  File "{SITE}/{file}", line 17, in {function}\n    {code}\n'
    return f"{before}{text}{error}\n"


@pytest.mark.parametrize(
    ("frames", "said", "unsaid"),
    [
        pytest.param([("torch/nn/parallel/data_parallel.py", "forward", "return self.gather(outputs, self.output_device)"),
                      ("torch/nn/parallel/comm.py", "gather", "return torch._C._gather(tensors, dim, destination)")],
                     "nn.DataParallel", "other processes", id="DataParallel gathers"),
        pytest.param([("torch/nn/parallel/replicate.py", "replicate", "param_copies = _broadcast_coalesced_reshape(params, devices)")],
                     "torchrun --nproc-per-node", "logits are rows", id="DataParallel copies"),
        pytest.param([("torch/nn/parallel/distributed.py", "forward", "output = self._run_ddp_forward(*inputs, **kwargs)"),
                      ("transformers/models/qwen2/modeling_qwen2.py", "forward", "down_proj = self.down_proj(x)")],
                     "halve per_device_train_batch_size", "DataParallel:", id="DistributedDataParallel is another thing"),
        pytest.param([("transformers/models/gemma2/modeling_gemma2.py", "eager_attention_forward", "attn_weights = nn.functional.softmax(attn_weights, dim=-1)")],
                     'attn_implementation="sdpa"', "logits are rows", id="eager attention"),
        pytest.param([("transformers/models/llama/modeling_llama.py", "forward", "attn_weights = torch.matmul(query_states, key_states.transpose(2, 3)) / math.sqrt(self.head_dim)")],
                     "eager attention", "logits are rows", id="older eager attention"),
        pytest.param([("torch/optim/adamw.py", "_init_group", 'state["exp_avg_sq"] = torch.zeros_like(p)')],
                     "fewer or shorter rows do not help", "halve per_device", id="states of the optimizer"),
        pytest.param([("bitsandbytes/optim/optimizer.py", "init_state", 'state["state1"] = self.get_state_buffer(p)')],
                     "paged_adamw_8bit", "halve per_device", id="states of bitsandbytes"),
        pytest.param([("transformers/trainer.py", "evaluation_loop", "all_preds.add(logits)"),
                      ("transformers/trainer_pt_utils.py", "nested_concat", "return torch_pad_and_concatenate(tensors, new_tensors)")],
                     "eval_accumulation_steps=1", "halve per_device", id="an evaluation keeps logits"),
        pytest.param([("transformers/trainer.py", "evaluation_loop", "losses, logits, labels = self.prediction_step(model, inputs)"),
                      ("transformers/models/llama/modeling_llama.py", "forward", "hidden_states = self.mlp(hidden_states)")],
                     "per_device_eval_batch_size", "eval_accumulation_steps", id="an evaluation's batch"),
        pytest.param([("transformers/generation/utils.py", "_sample", "outputs = model_forward(**model_inputs)"),
                      ("transformers/cache_utils.py", "update", "self.keys = torch.cat([self.keys, key_states], dim=-2)")],
                     "max_new_tokens", "cross entropy", id="a generation's cache"),
        pytest.param([("transformers/models/llama/modeling_llama.py", "forward", "hidden_states = layer(hidden_states)"),
                      ("transformers/cache_utils.py", "update", "self.keys = torch.cat([self.keys, key_states], dim=-2)")],
                     "use_cache=False", "max_new_tokens", id="a cache in training"),
        pytest.param([("transformers/loss/loss_utils.py", "ForCausalLMLoss", "logits = logits.float()"),
                      ("torch/nn/functional.py", "cross_entropy", "return torch._C._nn.cross_entropy_loss(input)")],
                     "use_liger_kernel", "eager attention", id="logits"),
        pytest.param([("transformers/modeling_utils.py", "from_pretrained", "model = cls(config)"),
                      ("torch/nn/modules/module.py", "convert", "return t.to(device)")],
                     "dtype=torch.bfloat16", "halve per_device", id="loading"),
        pytest.param([("vllm/v1/worker/gpu_worker.py", "initialize_cache", "self.model_runner.initialize_kv_cache(config)")],
                     "vllm_gpu_memory_utilization", "halve per_device", id="an engine beside the training"),
    ],
)  # fmt: skip
def test_the_traceback_says_what_needed_the_memory(
    tmp_path: Path, frames: list[tuple[str, str, str]], said: str, unsaid: str
) -> None:
    text = found(tmp_path, failed(*frames))[ENDED]
    assert said in text
    assert unsaid not in text


MLP = (
    "transformers/models/qwen2/modeling_qwen2.py",
    "forward",
    "down_proj = self.down_proj(self.act_fn(x))",
)


def test_what_is_in_use_already_is_not_advised(tmp_path: Path) -> None:
    printed = (
        "[INFO|trainer.py:2412]  >>   Instantaneous batch size per device = 1\n"
        "`use_cache=True` is incompatible with gradient checkpointing. Setting `use_cache=False`.\n"
    )
    text = found(tmp_path, failed(MLP, before=printed))[ENDED]
    assert "halve" not in text
    assert "turn gradient_checkpointing on" not in text
    assert "the batch is 1 and checkpointing is on already" in text


def test_a_batch_that_fails_late_has_longer_rows(tmp_path: Path) -> None:
    bar = " 13%|█▎        | 64/500 [01:12<10:03,  1.13s/it]\n"
    late = found(tmp_path, failed(MLP, before=f"{RESULT}\n{bar}"))[ENDED]
    assert "64 steps fitted before" in late
    assert "see the longest rows" in late
    first = found(tmp_path, failed(MLP))[ENDED]
    assert "fitted before" not in first


def growing(sizes: list[float]) -> str:
    return "".join(
        f"epoch 0 step {50 * number} loss {2 - number / 100:.3f} mem {size:.2f} GiB\n"
        for number, size in enumerate(sizes)
    )


def test_memory_that_grows_with_each_step_is_kept(tmp_path: Path) -> None:
    grows = found(tmp_path, failed(MLP, before=growing([8 + 0.5 * n for n in range(20)])))[ENDED]
    assert "something of each step is kept" in grows
    assert ".detach().cpu()" in grows
    assert "halve per_device_train_batch_size" not in grows


@pytest.mark.parametrize(
    "sizes",
    [
        [8 + min(n, 4) for n in range(20)],  # the longest row came early
        [8.0] * 20,
        [8, 8.2, 8.1, 8.2, 8.1, 8.3, 8.2, 8.1, 8.2, 8.3],
        [8, 12, 12, 12, 12, 12, 12, 12, 12, 17],
    ],
)
def test_a_peak_is_no_growth(tmp_path: Path, sizes: list[float]) -> None:
    assert "of each step is kept" not in found(tmp_path, failed(MLP, before=growing(sizes)))[ENDED]


def test_the_share_that_is_trained(tmp_path: Path) -> None:
    adam = ("torch/optim/adamw.py", "_init_group", 'state["exp_avg"] = torch.zeros_like(p)')
    whole = "trainable params: 1,092,616,192 || all params: 9,122,877,440 || trainable%: 11.9767\n"
    text = found(tmp_path, failed(adam, before=whole))[ENDED]
    assert "12.0% of all" in text
    assert "leave embed_tokens and lm_head out" in text
    for usual in (
        "trainable params: 41,943,040 || all params: 8,072,204,288 || trainable%: 0.5196\n",
        "trainable params: 8,030,261,248 || all params: 8,030,261,248 || trainable%: 100.0\n",
    ):
        assert "embed_tokens" not in found(tmp_path, failed(adam, before=usual))[ENDED]


@pytest.mark.parametrize(
    ("processes", "others"),
    [
        ("Process 402 has 22.44 GiB memory in use. ", 0.0),  # its own, as a container sees it
        (OWN, None),
        ("Process 17 has 9.80 GiB memory in use. " + OWN, 9.8),
        ("Process 17 has 4.00 GiB memory in use. Process 402 has 22.30 GiB memory in use. ", 4.0),
        ("Process 17 has 6.00 GiB memory in use. ", None),  # neither it nor what fits beside it
    ],
)
def test_other_processes_are_named_where_the_figures_prove_them(
    processes: str, others: float | None
) -> None:
    figures = parse_memory_error(ASKED + processes + IN_USE)
    if others:
        assert figures.others == pytest.approx(others)
        assert any("other processes" in line for line in figures.evidence())
    else:
        assert not any("other processes" in line for line in figures.evidence())


def test_another_process_beside_a_small_one_is_proved() -> None:
    text = (
        "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.25 GiB of which 1.05 GiB is"
        " free. Process 1 has 68.10 GiB memory in use. Of the allocated memory 9.10 GiB is allocated by PyTorch, and"
        " 100.00 MiB is reserved by PyTorch but unallocated."
    )
    assert parse_memory_error(text).others == pytest.approx(68.1)


def test_a_traceback_of_the_users_code_alone_is_general(tmp_path: Path) -> None:
    text = found(tmp_path, traceback(ASKED + OWN + IN_USE))[ENDED]
    assert "cause: more rows or longer rows" in text


NOTEBOOK = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 24.00 MiB. GPU 0 has a total capacity of 23.64 GiB of"
    " which 14.81 MiB is free. {}Including non-PyTorch memory, this process has 2.70 GiB memory in use. Of the allocated"
    " memory 2.30 GiB is allocated by PyTorch, and 28.00 MiB is reserved by PyTorch but unallocated."
)


@pytest.mark.parametrize(
    ("listed", "said"),
    [
        ("Process 48213 has 20.91 GiB memory in use. ", "end process 48213, which holds 20.9 GiB"),
        (
            "Process 17 has 10.00 GiB memory in use. Process 18 has 10.91 GiB memory in use. ",
            "end processes 17, 18, which hold 20.9 GiB",
        ),
        ("", "end what else holds 20.9 GiB"),
    ],
)
def test_what_holds_the_gpu_is_ended_before_the_batch_is_halved(
    tmp_path: Path, listed: str, said: str
) -> None:
    text = found(tmp_path, traceback(NOTEBOOK.format(listed)))[ENDED]
    assert said in text
    assert "other processes hold most of what is in use on this GPU" in text
    assert text.index(said) < text.index("halve per_device_train_batch_size")
    assert "expandable_segments" not in text


@pytest.mark.parametrize(
    ("frame", "idle", "is_enough"),
    [
        (("torch/optim/adam.py", "_init_group", 'state["exp_avg_sq"] = torch.zeros_like(p)'), "4.40 GiB", False),
        (("transformers/modeling_utils.py", "from_pretrained", "model.load()"), "4.40 GiB", False),
        (("transformers/models/qwen2/modeling_qwen2.py", "forward", "down_proj = self.down_proj(x)"), "4.40 GiB", True),
        (("transformers/models/qwen2/modeling_qwen2.py", "forward", "down_proj = self.down_proj(x)"), "1.90 GiB", False),
    ],
)  # fmt: skip
def test_pieces_are_enough_where_one_tensor_failed_that_fits_them(
    tmp_path: Path, frame: tuple[str, str, str], idle: str, *, is_enough: bool
) -> None:
    error = ASKED + OWN + IN_USE.replace("402.11 MiB", idle)
    assert (
        "expandable_segments" in found(tmp_path, failed(frame, error=error))[ENDED]
    ) is is_enough


OLD = "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 64.00 MiB (GPU 0; 23.69 GiB total capacity; {} GiB already allocated; 30.81 MiB free; {} GiB reserved in total by PyTorch)"


@pytest.mark.parametrize(
    ("allocated", "reserved", "others"), [(5.1, 5.32, 18.3), (21.9, 22.4, None)]
)
def test_the_older_message_proves_other_processes(
    allocated: float, reserved: float, others: float | None
) -> None:
    figures = parse_memory_error(OLD.format(allocated, reserved))
    assert figures.others == (pytest.approx(others, abs=0.1) if others else None)


def test_a_mac_says_what_it_may_use() -> None:
    figures = parse_memory_error(
        "MPS backend out of memory (MPS allocated: 16.86 GB, other allocations: 1.02 GB, max"
        " allowed: 18.13 GB). Tried to allocate 593.50 MB on private pool."
    )
    assert (figures.allocated, figures.capacity) == (16.86, 18.13)


STEPS = "step 410 loss 1.22\nstep 420 loss 1.19\n"
LATE_ERROR = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.10 GiB. GPU 0 has a total capacity of 39.38 GiB of which 702.00 MiB is free. Including non-PyTorch memory, this process has 38.68 GiB memory in use. Of the allocated memory {} GiB is allocated by PyTorch, and {} is reserved by PyTorch but unallocated."


def failed_late(frames: str, allocated: str = "37.9", idle: str = "300.00 MiB") -> str:
    """A traceback of a script of one's own, after 420 steps."""
    return (
        f"{STEPS}Traceback (most recent call last):\n{frames}{LATE_ERROR.format(allocated, idle)}\n"
    )


@pytest.mark.parametrize(
    ("frames", "said"),
    [
        (
            '  File "/w/loop.py", line 83, in validate\n    out = model(**batch)\n',
            "torch.no_grad()",
        ),
        (
            '  File "/w/loop.py", line 83, in run_eval\n    out = model(**batch)\n',
            "torch.no_grad()",
        ),
        (
            f'  File "/w/loop.py", line 12, in resume\n    s = torch.load(p)\n  File "{SITE}/torch/serialization.py", line 1530, in load\n    return _load(\n',
            'map_location="cpu"',
        ),
        (
            f'  File "/w/loop.py", line 12, in save\n    s = model.state_dict()\n  File "{SITE}/torch/distributed/fsdp/_unshard_param_utils.py", line 198, in _unshard_fsdp_state_params\n    _unshard(state)\n',
            "SHARDED_STATE_DICT",
        ),
    ],
)
def test_what_is_no_step_has_no_longer_rows(frames: str, said: str, tmp_path: Path) -> None:
    text = found(tmp_path, failed_late(frames))["run-ended-in-an-exception"]
    assert said in text
    assert "longer rows" not in text


def test_an_evaluation_of_the_trainer_is_not_ones_own(tmp_path: Path) -> None:
    frames = f'  File "{SITE}/transformers/trainer.py", line 9, in evaluation_loop\n    a()\n  File "/w/t.py", line 83, in evaluate\n    out = model(**batch)\n'
    text = found(tmp_path, failed_late(frames))["run-ended-in-an-exception"]
    assert "per_device_eval_batch_size" in text


def test_pieces_are_advised_before_the_batch(tmp_path: Path) -> None:
    frames = '  File "/w/loop.py", line 99, in <module>\n    loss.backward()\n'
    text = found(tmp_path, failed_late(frames, "28.4", "9.81 GiB"))["run-ended-in-an-exception"]
    assert text.index("expandable_segments") < text.index("halve per_device_train_batch_size")
    assert "one row many times" not in text


ON_GPU_0 = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 130.00 MiB. GPU {} has a total capacity of 44.40 GiB of which 61.31 MiB is free. {} Of the allocated memory {} GiB is allocated by PyTorch, and 12.00 MiB is reserved by PyTorch but unallocated."
FOUR = "Process 29410 has 14.86 GiB memory in use. Process 29411 has 14.86 GiB memory in use. Process 29412 has 7.52 GiB memory in use. Process 29413 has 7.08 GiB memory in use."
OTHERS = "Process 811 has 30.30 GiB memory in use. Process 29413 has 14.04 GiB memory in use."


BESIDE_OWN = "Process 3502 has 14.86 GiB memory in use. Process 3504 has 14.86 GiB memory in use. Including non-PyTorch memory, this process has 14.50 GiB memory in use."


def of_rank(rank: int, gpu: int, processes: str, own: str) -> str:
    lines = failed(MLP, error=ON_GPU_0.format(gpu, processes, own)).splitlines()
    return "".join(f"[rank{rank}]: {line}\n" for line in lines)


@pytest.mark.parametrize(
    ("output", "shared"),
    [
        pytest.param(
            of_rank(2, 0, FOUR, "7.1") + of_rank(3, 0, FOUR, "6.7"),
            True,
            id="two ranks name one GPU",
        ),
        pytest.param(
            of_rank(2, 0, FOUR, "7.1")
            + "E1118 21:07:34 29404 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: 1) local_rank: 2 (pid: 29412) of binary: python\n"
            + "W1118 21:07:34 29404 torch/distributed/elastic/multiprocessing/api.py:900] Sending process 29410 closing signal SIGTERM\n",
            True,
            id="the launcher names them",
        ),
        pytest.param(
            of_rank(1, 0, BESIDE_OWN, "14.1")
            + "W1118 21:07:34 3490 torch/distributed/elastic/multiprocessing/api.py:900] Sending process 3502 closing signal SIGTERM\n"
            + "E1118 21:07:34 3490 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: 1) local_rank: 1 (pid: 3503) of binary: python\n",
            True,
            id="the message leaves the process itself out",
        ),
        pytest.param(
            of_rank(1, 0, BESIDE_OWN, "14.1")
            + "E1118 21:07:34 3490 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: 1) local_rank: 1 (pid: 3503) of binary: python\n",
            False,
            id="those beside it are named by no launcher",
        ),
        pytest.param(
            of_rank(0, 0, OTHERS, "13.7") + of_rank(1, 1, OTHERS, "13.7"),
            False,
            id="each rank has a GPU",
        ),
        pytest.param(
            of_rank(3, 3, OTHERS, "13.7")
            + "E1118 21:07:34 29404 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: 1) local_rank: 3 (pid: 29413) of binary: python\n",
            False,
            id="a server of somebody else's",
        ),
    ],
)
def test_ranks_of_one_run_on_one_gpu_are_no_other_processes(
    tmp_path: Path, output: str, shared: bool
) -> None:
    text = found(tmp_path, output)[ENDED]
    assert ("several processes of this run are on one GPU" in text) is shared
    assert ("set_device" in text and "end process" not in text) is shared
    assert ("other processes hold" in text) is not shared


RESUMING = """Traceback (most recent call last):
  File "/home/a/train.py", line 88, in <module>
    main()
  File "/home/a/train.py", line 51, in main
    state = torch.load(args.resume)
  File "/opt/venv/lib/python3.11/site-packages/torch/serialization.py", line 1516, in load
    return _load(
"""
EARLIER = (
    "{'loss': 1.2, 'learning_rate': 1e-05, 'epoch': 0.4}\n" * 20
    + "100%|##########| 200/200 [10:00<00:00,  3.00s/it]\n"
)
TORCHRUN = "W1118 21:00:00 3490 torch/distributed/run.py:792] Setting OMP_NUM_THREADS environment variable for each process to be 1 in default\n"


@pytest.mark.parametrize(
    ("launch", "steps"),
    [
        pytest.param(TORCHRUN, False, id="torchrun again"),
        pytest.param(
            "+ python train.py --resume last.pt\n", False, id="the shell prints the command"
        ),
        pytest.param("", True, id="one launch"),
        pytest.param("$HOME is set by python train.py\n", True, id="words"),
    ],
)
def test_steps_of_an_earlier_launch_are_not_those_of_the_one_that_failed(
    tmp_path: Path, launch: str, steps: bool
) -> None:
    error = ON_GPU_0.format(0, BESIDE_OWN, "14.1")
    text = found(tmp_path, TORCHRUN + EARLIER + launch + RESUMING + error + "\n")[ENDED]
    assert ("after step" in text) is steps
    assert ("earlier launch" in text) is not steps


def test_ranks_that_read_a_checkpoint_onto_one_gpu_are_told_of_map_location(tmp_path: Path) -> None:
    error = ON_GPU_0.format(0, BESIDE_OWN, "14.1")
    terminated = "W1118 21:07:34 3490 torch/distributed/elastic/multiprocessing/api.py:900] Sending process 3502 closing signal SIGTERM\n"
    output = "".join(f"[rank1]: {line}\n" for line in (RESUMING + error).splitlines())
    text = found(tmp_path, output + terminated)[ENDED]
    assert "map_location" in text
    assert "end process" not in text


def test_processes_on_a_gpu_are_counted_from_the_message(tmp_path: Path) -> None:
    launcher = (
        "W1118 21:07:34 3490 torch/distributed/elastic/multiprocessing/api.py:900] Sending process 3502 closing signal SIGTERM\n"
        "E1118 21:07:34 3490 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: 1) local_rank: 1 (pid: 3503) of binary: python\n"
    )
    text = found(tmp_path, of_rank(1, 0, BESIDE_OWN, "14.1") + launcher)[ENDED]
    assert "3 processes are on GPU 0 together, at least 2 of them of this run" in text
    both = of_rank(2, 0, FOUR, "7.1") + of_rank(3, 0, FOUR, "6.7")
    assert "4 processes are on GPU 0" in found(tmp_path, both)[ENDED]


LOAD = '  File "/w/run.py", line 90, in <module>\n    base = AutoModel.from_pretrained(base_id{})\n'
LOAD += f'  File "{SITE}/transformers/modeling_utils.py", line 311, in _wrapper\n    return func(*args)\n'
LOAD += f'  File "{SITE}/transformers/modeling_utils.py", line 5, in from_pretrained\n    load()\n'
FULL = ASKED.replace("1.20 GiB is free", "75.38 MiB is free")
FULL += "Process 5210 has 23.5 GiB memory in use. " + IN_USE


def loading(steps: str, arguments: str, error: str = FULL) -> str:
    return f"{steps}Traceback (most recent call last):\n{LOAD.format(arguments)}{error}\n"


def test_a_load_behind_steps_finds_the_run_s_own_memory(tmp_path: Path) -> None:
    text = found(tmp_path, loading(STEPS, ", dtype=torch.bfloat16"))[ENDED]
    assert "another model was loaded onto the GPU after the training" in text
    assert "del model, trainer" in text
    assert "before any row" not in text
    assert "nvidia-smi" not in text
    assert "dtype=torch.bfloat16 (" not in text


def test_a_notebook_is_one_process(tmp_path: Path) -> None:
    log = loading(STEPS, "").replace("/w/run.py", "/tmp/ipykernel_71/401.py")
    assert "program of its own" not in found(tmp_path, log)[ENDED]
    assert "program of its own" in found(tmp_path, loading(STEPS, ""))[ENDED]


def test_a_load_before_any_step_is_too_large_by_itself(tmp_path: Path) -> None:
    text = found(tmp_path, loading(RESULT.partition("{")[0], ""))[ENDED]
    assert "before any row" in text
    assert "dtype=torch.bfloat16 (" in text
    # this process holds all that is in use
    assert "nvidia-smi" not in text
    others = (
        ASKED
        + "Process 77 has 20.1 GiB memory in use. this process has 2.1 GiB memory in use. Of the allocated memory 1.60 GiB is allocated by PyTorch, and 2.11 MiB is reserved by PyTorch but unallocated."
    )
    assert "nvidia-smi" in found(tmp_path, loading("", "", others))[ENDED]


def test_what_the_failing_line_has_is_not_advised(tmp_path: Path) -> None:
    text = found(tmp_path, loading("", ", quantization_config=bnb"))[ENDED]
    assert "BitsAndBytesConfig" not in text
    assert "more GPUs" in text
    half = found(tmp_path, loading("", ', torch_dtype="auto"'))[ENDED]
    assert "dtype=torch.bfloat16 (" not in half
    assert "BitsAndBytesConfig" in half


@pytest.mark.parametrize(
    "frames",
    [
        '  File "/w/loop.py", line 83, in evaluate\n    out = model(**batch)\n',
        '  File "/w/loop.py", line 83, in validation_step\n    out = model(**batch)\n',
        '  File "/w/loop.py", line 83, in run_eval\n    out = model(**batch)\n',
        f'  File "/w/loop.py", line 83, in evaluate\n    out = model(**batch)\n  File "{SITE}/accelerate/utils/operations.py", line 8, in forward\n    return f(*a)\n',
        f'  File "/w/loop.py", line 83, in eval_loop\n    out = model(**batch)\n  File "{SITE}/deepspeed/runtime/engine.py", line 8, in forward\n    return f(*a)\n',
    ],
)
def test_settings_of_the_trainer_are_none_of_an_evaluation_of_ones_own(
    frames: str, tmp_path: Path
) -> None:
    text = found(tmp_path, failed_late(frames))[ENDED]
    assert "per_device_eval_batch_size" not in text
    assert "prediction_loss_only" not in text
    assert "no_grad" in text
