from trl import GRPOTrainer

from tests.auditing.tiny_rollouts import grpo


class MyTrainer(GRPOTrainer):
    def _tokenize_prompts(self, prompts):
        encode = self.processing_class.apply_chat_template
        return encode(prompts, return_dict=True)["input_ids"], None, {}


grpo(MyTrainer).train()
