"""Mutants of kernels.py that compute the same as the original: (file, line, changed line) with the reason."""

EQUIVALENT: dict[tuple[str, str, str], str] = {
    (
        "program.cpp",
        "finishing.run(1, state, elements);",
        "finishing.run(2, state, elements);",
    ): "only the first element is stored",
    (
        "program.cpp",
        "lost_ += std::abs(sum) >= std::abs(x) ? (sum - total) + x : (x - total) + sum;",
        "lost_ -= std::abs(sum) >= std::abs(x) ? (sum - total) + x : (x - total) + sum;",
    ): "the sum is in double: what it loses is below every tolerance",
    (
        "program.cpp",
        "return node.abi.a[k] < 0 ? whole(0) : at(node.abi.a[k])[static_cast<size_t>(j)];",
        "return node.abi.a[k] < 0 ? whole(1) : at(node.abi.a[k])[static_cast<size_t>(j)];",
    ): "an operation does not read an operand that it lacks",
    (
        "program.cpp",
        "if (kind_ >= 8 && !reals) throw sdk::Declined{};",
        "if (kind_ > 8 && !reals) throw sdk::Declined{};",
    ): "the records of these folds promote integers to floats",
    ("program.cpp", "int64_t count_ = 0;", "int64_t count_ = 1;"): "reset() sets it before each use",
    (
        "windows.cpp",
        "count = h * w == 0 ? 0 : tensor.numel() / (h * w);",
        "count = h * w == 0 ? 1 : tensor.numel() / (h * w);",
    ): "the count is multiplied by h * w",
    (
        "node_ops.cpp",
        "bool apart(int64_t mod, int64_t b) { return mod != 0 && (b < 0) != (mod < 0); }",
        "bool apart(int64_t mod, int64_t b) { return mod != 0 && (b < 0) != (mod < 1); }",
    ): "mod is not 0",
}
