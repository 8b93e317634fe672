"""Reads operator records (ops.yaml) and writes the C++ that follows from them."""
