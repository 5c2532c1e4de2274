"""The log: events and the hash chain over them, its verification, its reports, its export."""
