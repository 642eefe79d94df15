"""The run folder: what a run leaves behind, safe at every moment."""
