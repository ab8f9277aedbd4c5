"""Models: folders on a disk, and MLflow's registry of them. The only room that imports mlflow and reads weights; detectors take arrays.

Loads nothing by itself.
"""
