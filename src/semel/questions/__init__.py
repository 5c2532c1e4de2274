"""What is asked of people, and its one decision, for plain code and the gateway alike."""
