"""What a tool or handler declares: signature, arguments, values, secrets, and what an exception means."""
