"""The five model tools: what a model may ask about its own history, and how the answers read."""
