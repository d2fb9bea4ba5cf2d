"""A Ray job: check the data set, encode it on the cluster, and train only if both ended with exit code 0.

    ray job submit -- python /shared/check_then_train.py /shared/run

The folder holds chats.jsonl, model/ and train.py. All nodes must see it under the same path, since Ray may run each
step on another node.
"""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import ray

CHECK = ("truetune", "check", "chats.jsonl", "-t", "model")
ENCODE = ("truetune", "encode", "chats.jsonl", "-t", "model", "-o", "encoded", "--engine", "ray")
TRAIN = ("truetune", "run", "--", "python", "train.py")


# A step that ends with findings must not be tried again: the data are the same the second time.
@ray.remote(max_retries=0)
def run_step(command: tuple[str, ...], folder: str) -> Iterator[str | int]:
    """Run one command on a node of the cluster.

    Args:
        command: The program and its arguments.
        folder: Where it runs; all nodes see it.

    Yields:
        Each line that it prints, as soon as it is printed, and its exit code at the end.

    Raises:
        FileNotFoundError: The node has no such program or folder.
    """
    with subprocess.Popen(
        command,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
    ) as process:
        assert process.stdout is not None
        # Not `yield from`: Ray sends into its generators, and a file takes nothing.
        for line in process.stdout:  # noqa: UP028
            yield line
    yield process.returncode


def print_lines(step: Iterator["ray.ObjectRef[str | int]"]) -> int:
    """Print what a step prints, while it runs.

    Args:
        step: The running task.

    Returns:
        The exit code of its command.

    Raises:
        RuntimeError: The task ended without one.
    """
    for item in step:
        line_or_exit_code = ray.get(item)
        if isinstance(line_or_exit_code, int):
            return line_or_exit_code
        print(line_or_exit_code, end="", flush=True)
    raise RuntimeError("the step ended without an exit code")


def main(folder: Path) -> int:
    """Run the steps one after the other, up to the first that fails.

    Args:
        folder: Holds the data set, the model and the training script.

    Returns:
        The exit code of the last step that ran. Ray takes the job for failed if it is not 0.
    """
    gpus = min(1.0, ray.cluster_resources().get("GPU", 0.0))
    for command, resources in (
        (CHECK, {"num_cpus": 1}),
        # This step waits for Ray tasks of its own, so it holds no core that they need.
        (ENCODE, {"num_cpus": 0}),
        (TRAIN, {"num_cpus": 1, "num_gpus": gpus}),
    ):
        step = run_step.options(**resources).remote(command, str(folder))
        # Ray's types don't say that a task which yields gives an iterator.
        exit_code = print_lines(cast("Iterator[ray.ObjectRef[str | int]]", step))
        if exit_code:
            print(f"exit code {exit_code}: {' '.join(command)}", file=sys.stderr)
            return exit_code
    return 0


if __name__ == "__main__":
    ray.init()
    sys.exit(main(Path(sys.argv[1]).absolute()))
