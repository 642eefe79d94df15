"""Measurements on teams: so far how well their fairness can be predicted."""
