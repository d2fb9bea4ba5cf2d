"""Who answers: a model in this process, a server, vLLM, llama.cpp; one interface."""
