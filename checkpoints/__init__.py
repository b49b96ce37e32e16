"""Files: the canonical format, safe readers, importers of other people's layouts, the zoo."""
