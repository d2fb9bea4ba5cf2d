"""How true findings on public material are: each judged by a reader, with the reason."""
