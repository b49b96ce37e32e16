"""Algorithm families, one file each."""
