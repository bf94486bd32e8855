"""What a host needs around tools: registry, scheduler, policies, prompt, configuration."""
