"""The two half steps and what they are made of; errors of a state."""
