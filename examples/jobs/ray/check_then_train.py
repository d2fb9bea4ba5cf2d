"""A Ray job: check the data set, encode it on the cluster, and train only if both ended with exit code 0.

    ray job submit -- python /shared/check_then_train.py /shared/run

The folder holds chats.jsonl, model/ and train.py. All nodes must see it under the same path, since Ray may run each
step on another node.
"""

import subprocess
import sys
from pathlib import Path

import ray

CHECK = ("truetune", "check", "chats.jsonl", "-t", "model")
ENCODE = ("truetune", "encode", "chats.jsonl", "-t", "model", "-o", "encoded", "--engine", "ray")
TRAIN = ("truetune", "run", "--", "python", "train.py")


# A step that ends with findings must not be tried again: the data are the same the second time.
@ray.remote(max_retries=0)
def run_step(command: tuple[str, ...], folder: str) -> tuple[int, str]:
    """Run one command on a node of the cluster.

    Args:
        command: The program and its arguments.
        folder: Where it runs; all nodes see it.

    Returns:
        Its exit code, and all that it printed.
    """
    done = subprocess.run(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    return done.returncode, done.stdout


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
        exit_code, output = ray.get(step)
        print(output, end="", flush=True)
        if exit_code:
            print(f"exit code {exit_code}: {' '.join(command)}", file=sys.stderr)
            return exit_code
    return 0


if __name__ == "__main__":
    ray.init()
    sys.exit(main(Path(sys.argv[1]).absolute()))
