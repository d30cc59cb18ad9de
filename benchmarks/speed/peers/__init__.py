"""Workers of `lur bench speed` for other frameworks: scripts that run in separate environments without lur."""
