"""Which FairTest this is. Runs, studies and exported tests name it."""

__version__ = "0.2.0"
