"""Training scripts run in forks of one warm process, which has imported torch, transformers, peft and trl already.

Most of the time of a case that is run (`truetune run -- python train.py`) goes into importing its libraries. Here each
script runs in a fork of its own, up to the first step, with the same hook, record and rules as below the command, which
`--processes` takes instead.

python -m bench.bugs.warm     a server: one line of JSON a request ({folder, words, seconds}), one line an answer
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import runpy
import select
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from truetune.probe.orders_from_launcher_to_hook import HookOrders

QUIET = {
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
    "CUDA_VISIBLE_DEVICES": "",
    "AXOLOTL_DO_NOT_TRACK": "1",
}
ROOT = Path(__file__).parents[2]
TOOLS = {
    "axolotl": ("TRUETUNE_AXOLOTL", "axolotl"),
    "llama_factory": ("TRUETUNE_LLAMAFACTORY", "llamafactory-cli"),
}
"""The variable that holds the Python of a tool's environment, and the tool beside it"""


class Warm:
    """A server, and the calls that it answers one after the other."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "bench.bugs.warm"],
            cwd=ROOT,
            text=True,
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def ask(
        self, words: Sequence[str], folder: Path, seconds: float, rollouts: bool = False
    ) -> dict[str, Any]:
        """{findings, error} of `truetune WORDS`, called in a folder; with `rollouts`, of the first steps as well."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        request = {
            "folder": str(folder),
            "words": list(words),
            "seconds": seconds,
            "rollouts": rollouts,
        }
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        answer: dict[str, Any] = json.loads(
            self.process.stdout.readline() or '{"error": "the warm process ended"}'
        )
        return answer

    def close(self) -> None:
        """End the server."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(10)


def environment(runs: bool = True) -> dict[str, str]:
    """Of a call of truetune; where it `runs` a script, the script can import the tests' tiny models."""
    import truetune

    paths = (str(Path(truetune.__file__).parents[1]), *([str(ROOT)] if runs else []))
    tools = (
        [str(Path(os.environ[name]).parent) for name, _ in TOOLS.values() if name in os.environ]
        if runs
        else []
    )
    path = os.pathsep.join([*tools, os.environ.get("PATH", "")])
    return {
        **os.environ,
        "PATH": path,
        "NO_COLOR": "1",
        **(QUIET if runs else {}),
        "PYTHONPATH": os.pathsep.join(paths),
    }


def serve() -> None:
    """Answer until the input ends."""
    import peft  # noqa: F401 - loaded once for all forks
    import torch
    import trl.experimental.kto
    import trl.experimental.orpo  # noqa: F401 - loaded once for all forks
    from trl import DPOTrainer, KTOTrainer, RewardTrainer, SFTTrainer  # noqa: F401 - loaded once for all forks

    from tests.auditing import tiny  # noqa: F401 - loaded once for all forks

    torch.set_num_threads(1)
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    for line in sys.stdin:
        out.write(json.dumps(_forked(json.loads(line))) + "\n")


def _forked(request: dict[str, Any]) -> dict[str, Any]:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        os.setsid()
        with os.fdopen(writer, "w") as pipe:
            pipe.write(json.dumps(_run(request)))
        os._exit(0)
    os.close(writer)
    until, text = time.monotonic() + request["seconds"], b""
    while (left := until - time.monotonic()) > 0 and select.select([reader], [], [], left)[0]:
        piece = os.read(reader, 1 << 16)
        if not piece:
            break
        text += piece
    else:
        os.killpg(child, signal.SIGKILL)
    os.close(reader)
    os.waitpid(child, 0)
    try:
        return dict(json.loads(text))
    except ValueError:
        return {"error": f"no answer in {request['seconds']} s"}


def _run(request: dict[str, Any]) -> dict[str, Any]:
    """The script up to its first step, or up to the verdict on its rollouts, and what truetune says there."""
    import truetune.probe.audit_session
    import truetune.probe.rollout_hook
    from truetune.probe.audit_time_limits_and_replies import GO, STOP
    from truetune.probe.rehearsal_hook import RehearsalHook
    from truetune.probe.trainer_hook import wait_for_trainer_after_package_import

    reached: list[dict[str, Any]] = []

    def stop(message: dict[str, Any], *_: Any) -> str:
        """In the place of the parent's verdict: the script ends before its first step, or once rollouts are noted."""
        reached.append(message)
        return GO if request["rollouts"] and len(reached) == 1 else STOP

    os.chdir(request["folder"])
    middle = request["words"].index("--")
    words, (_, script, *arguments) = request["words"][:middle], request["words"][middle + 1 :]
    sys.argv = [script, *arguments]
    said = io.StringIO()
    for module in (truetune.probe.audit_session, truetune.probe.rollout_hook):
        vars(module)["await_verdict"] = stop
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            orders = _orders(words)
            if orders["mode"] == "rehearse":
                RehearsalHook(orders, orders["folder"]).patch_modules_once_imported()
            else:
                for package in ("datasets", "transformers"):
                    wait_for_trainer_after_package_import(
                        package, {**orders, "in_place": True}, lambda name, act: act()
                    )
            runpy.run_path(script, run_name="__main__")
    except BaseException:
        if not reached:
            return {"error": traceback.format_exc()[-600:]}
    if request["rollouts"] and len(reached) == 1:
        return {"error": f"the script ended before its rollouts: {said.getvalue()[-200:]}"}
    if reached:
        return _judged(*reached)
    return {"error": f"the script ended before it reached a trainer: {said.getvalue()[-200:]}"}


def _orders(words: Sequence[str]) -> HookOrders:
    """What the command of these words tells the hook."""
    told = dict(pairwise(words))
    folder = tempfile.mkdtemp(prefix="truetune-")
    orders: HookOrders = {
        "laws": told.get("--laws", "quick"),
        "canary": "--canary" in words,
        "folder": folder,
    }
    if words[0] == "rehearse":
        return {**orders, "mode": "rehearse", "rows": 6, "batches": 4}
    return {**orders, "mode": "audit", "batches": 8}


def _judged(*messages: dict[str, Any]) -> dict[str, Any]:
    """The findings on the batches of a run, and on its rollouts where a second message tells of them."""
    from truetune.checks.judge_audit import audit
    from truetune.checks.judge_rollouts import judge_recorded_rollouts
    from truetune.probe.run_record import read_record
    from truetune.report.as_json import report_as_dict

    findings: list[dict[str, Any]] = []
    for message, judge in zip(messages, (audit, judge_recorded_rollouts), strict=False):
        if "failed" in message:
            return {"error": message["failed"]}
        report = judge([read_record(Path(message["folder"]))])
        findings += report_as_dict(report)["findings"]
    return {"findings": findings}


if __name__ == "__main__":
    serve()
