"""Jobs that are registered through the API: what they may ask for, and the processes that watch them."""
