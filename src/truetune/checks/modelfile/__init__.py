"""Rules on how Ollama serves a model."""
