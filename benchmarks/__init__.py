"""Speed, measured: ratios inside one run, in CPU time. Nothing here is asserted by a test."""
