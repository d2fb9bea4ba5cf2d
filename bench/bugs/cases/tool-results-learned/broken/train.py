from trl import GRPOTrainer

from tests.auditing.tiny_rollouts import grpo


def lookup(box: int) -> int:
    """
    Counts what is in a box.

    Args:
        box: Its number.
    """
    return 42 + box


class Agent(GRPOTrainer):
    def _tool_call_loop(self, prompts, prompt_ids, ids, completions, logps, *others):
        told = self.processing_class(" 42 is in it\n")["input_ids"]
        given = [prompt + one + told for prompt, one in zip(prompt_ids, ids)]
        more, _ = self._generate_single_turn(given, *others, 1)
        mask = [[1] * len(a) + [1] * len(told) + [1] * len(b) for a, b in zip(ids, more)]
        ids = [a + told + b for a, b in zip(ids, more)]
        return mask, completions, ids, None, 0, 0, [[] for _ in ids]


trainer = grpo(Agent, max_completion_length=64)
trainer.tools = [lookup]
trainer.train()
