"""The commands of `lur`, one file each."""
