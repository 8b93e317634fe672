"""Reads operator records (ops.yaml) and generates C++ from them."""
