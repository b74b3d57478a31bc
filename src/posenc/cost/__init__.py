"""What a run will take, without running it: parameters, memory, operations and time."""
