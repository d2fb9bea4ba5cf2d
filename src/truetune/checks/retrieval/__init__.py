"""Rules on rows that train an embedding model or a reranker."""
