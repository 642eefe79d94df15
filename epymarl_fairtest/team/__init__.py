"""The trained team: its policy, the folder it is saved in, and the sample of its training."""
