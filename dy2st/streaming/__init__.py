"""Models of whole sequences, run chunk by chunk."""
