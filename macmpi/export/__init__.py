"""A trained net in other formats: ONNX, a torch module, a NumPy file.  None of them needs macmpi."""
