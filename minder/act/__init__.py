"""What is done: policy, actuators, recovery, controller."""
