"""`lur bench speed`: ratios against a baseline in the same run, repeated and interleaved, taking minima."""
