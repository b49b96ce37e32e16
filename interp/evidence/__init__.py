"""Questions asked of a network and what was recovered from it, one file each."""
