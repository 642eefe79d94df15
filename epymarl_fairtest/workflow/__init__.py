"""FairTest in a team's daily work: a gate for CI, failures as regression tests, two teams compared, runs listed."""
