"""Benchmarks: ratios against a peer in the same run. They make their own data."""
