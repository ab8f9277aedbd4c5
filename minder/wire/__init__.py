"""The protocol between the controller and the machines: records as JSON, the heartbeat file, tokens, the HTTP client."""
