"""What several rules on rows of embedding models and rerankers look at."""
