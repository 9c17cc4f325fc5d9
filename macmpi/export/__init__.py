"""A trained net as an ONNX file, for programs without macmpi."""
