"""`lur bench`: lur's speed relative to a baseline of the same run; contenders alternate, the fastest turn counts."""
