"""The contenders of `lur bench speed`: scripts that run in environments of their own and know nothing of lur."""
