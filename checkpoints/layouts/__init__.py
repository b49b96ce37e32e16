"""Built-in layouts: descriptions, in TOML, of files that other people's code writes."""
