"""Independent numerics that the engine is judged by: NumPy in float64, nothing of pilotfish's own code."""
