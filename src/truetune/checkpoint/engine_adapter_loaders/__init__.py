"""What the adapter loaders of serving engines do, by engine, release and architecture."""
