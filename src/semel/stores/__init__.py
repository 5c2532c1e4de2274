"""Where records live: one protocol, several stores."""
