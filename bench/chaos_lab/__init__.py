"""One job of the lab that trains while faults of all kinds strike it: schedule, injectors, judge, table (bench/chaos.py)."""
