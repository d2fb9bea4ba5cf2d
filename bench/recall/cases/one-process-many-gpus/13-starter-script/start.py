import subprocess

from accelerate import notebook_launcher

from legal import run


def cards():
    listing = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True)
    return len(listing.stdout.strip().splitlines())


if __name__ == "__main__":
    notebook_launcher(run, args=("Qwen/Qwen3-8B", "runs/legal"), num_processes=cards(), mixed_precision="bf16")
