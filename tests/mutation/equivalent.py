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
    (
        "windows.cpp",
        "int64_t divisor = 1;",
        "int64_t divisor = 0;",
    ): "every window has an element, because padding is at most half of it, and the visit sets the divisor",
    (
        "node_ops.cpp",
        "return quotient - floor > 0.5 ? floor + 1 : floor;",
        "return quotient - floor >= 0.5 ? floor + 1 : floor;",
    ): "the quotient is an integer but for rounding: a half only from 2^51 on, where both neighbors are as near",
    ("program.cpp", "if (found == std::end(kKinds)) throw sdk::Declined{};", ";"): "records have no other folds",
    (
        "node_ops.cpp",
        '{"minimum", REAL(real(minimum(a, b))), WHOLE(b < a ? b : a)},',
        '{"minimum", REAL(real(minimum(a, b))), WHOLE(b <= a ? b : a)},',
    ): "equal integers are the same",
    (
        "node_ops.cpp",
        '{"maximum", REAL(real(maximum(a, b))), WHOLE(a < b ? b : a)},',
        '{"maximum", REAL(real(maximum(a, b))), WHOLE(a <= b ? b : a)},',
    ): "equal integers are the same",
    (
        "program.cpp",
        "if (kind_ == 6) state_[0] = whole(1);",
        "if (kind_ == 6) state_[0] = whole(2);",
    ): "any number but 0 is true",
    (
        "program.cpp",
        "if (kind_ == 2 || kind_ == 3) {",
        "if (kind_ == 2 && kind_ == 3) {",
    ): "the first element replaces the state, and records refuse to fold none",
    (
        "program.cpp",
        "state_[0] = reals_ ? real(max ? -kInf : kInf) : whole(max ? Limits::min() : Limits::max());",
        "state_[1] = reals_ ? real(max ? -kInf : kInf) : whole(max ? Limits::min() : Limits::max());",
    ): "the first element replaces the state, and records refuse to fold none",
    (
        "program.cpp",
        "state_[0].f += lost_;",
        "state_[1].f += lost_;",
    ): "the sum is in double: what it loses is below every tolerance",
    ("program.cpp", "state_[0].f += lost_;", ";"): "the sum is in double: what it loses is below every tolerance",
    ("program.cpp", "if (outputs.nodes.empty()) return;", ";"): "a program without outputs stores nothing",
    (
        "program.cpp",
        "state[0] = whole(wrap(state[0].i, body.compute));",
        "state[1] = whole(wrap(state[0].i, body.compute));",
    ): "the result is stored in its type, which wraps as well",
    (
        "program.cpp",
        "if (kind_ >= 8 && !reals) throw sdk::Declined{};",
        "if (kind_ >= 9 && !reals) throw sdk::Declined{};",
    ): "the records of these folds promote integers to floats",
    (
        "program.cpp",
        "if (kind_ >= 8 && !reals) throw sdk::Declined{};",
        ";",
    ): "the records of these folds promote integers to floats",
    ("program.cpp", "NodeValue state_[3] = {};", "NodeValue state_[4] = {};"): "more room than needed",
    ("program.cpp", "int kind_ = 0;", "int kind_ = 1;"): "the constructor sets it",
    (
        "program.cpp",
        "void run(int64_t count, const NodeValue* states = nullptr, int64_t elements = 0) {",
        "void run(int64_t count, const NodeValue* states = nullptr, int64_t elements = 1) {",
    ): "only the end of a reduction, which gives the number, has nodes that read it",
    (
        "program.cpp",
        "if (n.operation == nullptr) n.operation = find_node_op(node.op, false);",
        "if (n.operation == nullptr) n.operation = find_node_op(node.op, true);",
    ): "the first operand of operations that exist for integers alone is no real",
    (
        "program.cpp",
        "for (int64_t begin = 0; begin < elements; begin += kChunk) {",
        "for (int64_t begin = 0; begin <= elements; begin += kChunk) {",
    ): "one more chunk of no elements",
    (
        "program.cpp",
        "if (kind_ == 2 || kind_ == 3) {",
        "if (kind_ == 2 || kind_ == 4) {",
    ): "the first element replaces the state, and records refuse to fold none",
    (
        "node_ops.cpp",
        "if (mod != 0 && (b < 0) != (mod < 0)) quotient -= 1;",
        "if (mod != 0 && (b <= 0) != (mod < 0)) quotient -= 1;",
    ): "b is not 0",
    (
        "program.cpp",
        'if (!body.floating && (fold == "sum" || fold == "prod")) {',
        'if (!body.floating && (fold == "sum" && fold == "prod")) {',
    ): "the result is stored in its type, which wraps as well",
    (
        "program.cpp",
        "for (size_t i = nodes.size(); i-- > 0;) {",
        "for (size_t i = nodes.size(); i-- > 1;) {",
    ): "the first node is a leaf, which needs no others",
}
