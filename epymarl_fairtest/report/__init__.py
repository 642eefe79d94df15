"""Figures. The only package that plots; it knows numbers, not runs."""
