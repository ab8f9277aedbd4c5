"""Every figure that minder draws. matplotlib is imported only when something is drawn."""
