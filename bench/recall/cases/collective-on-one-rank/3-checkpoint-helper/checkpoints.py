import json
import os
import time


class Checkpointer:
    def __init__(self, root, rank, every=200):
        self.root, self.every = root, every
        self.is_writer = rank == 0
        self.started = time.time()

    def due(self, step):
        return step > 0 and step % self.every == 0

    def save(self, engine, step, loss):
        if not self.is_writer:
            return
        tag = f"step{step:06d}"
        engine.save_checkpoint(self.root, tag=tag, client_state={"step": step})
        with open(os.path.join(self.root, "history.jsonl"), "a") as f:
            f.write(json.dumps({"tag": tag, "loss": loss, "seconds": time.time() - self.started}) + "\n")
