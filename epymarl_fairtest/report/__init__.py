"""The page of a run, its figures and films, and the figures of studies. The only package that plots."""
