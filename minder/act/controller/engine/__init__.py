"""The scheduler that owns the machines: asked, and handed them back."""
