"""What runs on machines and beside jobs. Light imports only.

No numpy, polars, SQLAlchemy or FastAPI; torch only where tensors are the subject.
"""
