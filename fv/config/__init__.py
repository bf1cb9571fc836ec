"""The user's configuration: TOML or JSON in sing-box's words, to frozen typed structs."""
