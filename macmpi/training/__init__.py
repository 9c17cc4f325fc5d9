"""Training is the loop around a method, and the files that it keeps."""
