"""The two half steps are prepared and carried out here, and the errors of a state are computed."""
