"""Who calls, by other means than minder's own tokens: OpenID Connect, and machines' certificates."""
