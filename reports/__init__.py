"""What people see. Takes results, never models."""
