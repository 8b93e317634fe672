// Pointwise programs of complex operands: one evaluation per element, in complex long doubles.
#include <cmath>
#include <complex>
#include <cstdint>
#include <memory>
#include <numbers>
#include <span>
#include <string_view>
#include <vector>

#include "backends/reference/elements.h"
#include "backends/reference/program.h"
#include "mytorch/backend/error.h"
#include "mytorch/backend/tensor.h"

namespace mytorch::reference {
// The names of the other domains, for complex values.
namespace complex_domain {
namespace {

using Real = long double;
using Z = std::complex<Real>;

constexpr Real kLn2 = std::numbers::ln2_v<Real>;

// Near 0, the real part of exp(z) - 1 by the functions that are accurate there.
Z expm1(Z z) {
  const Real half = std::sin(z.imag() / 2);
  return {std::expm1(z.real()) * std::cos(z.imag()) - 2 * half * half,
          std::exp(z.real()) * std::sin(z.imag())};
}

Z log1p(Z z) {
  const Real x = z.real();
  const Real y = z.imag();
  const Real size =
      std::abs(z) < 0.5L ? std::log1p(x * (2 + x) + y * y) / 2 : std::log(std::hypot(x + 1, y));
  return {size, std::atan2(y, x + 1)};
}

// Near the poles, where w is near -1, 1 + w would cancel: half angles give 1 + cos(y).
Z sigmoid(Z z) {
  const Z w = std::exp(-z);
  Z below = Z(1) + w;
  if (std::abs(z.real()) < 1 && w.real() < 0) {
    const Real half = std::cos(z.imag() / 2);
    below.real(2 * half * half + std::expm1(-z.real()) * std::cos(z.imag()));
  }
  return Z(1) / below;
}

Z pow(Z a, Z b) {
  if (b == Z(0)) return 1;
  if (a == Z(0)) return b.real() > 0 ? Z(0) : Z(NAN, NAN);
  return std::exp(b * std::log(a));
}

Z sign(Z a) { return a == Z(0) ? Z(0) : a / std::abs(a); }

bool holds(Z z) { return z != Z(0); }

struct Op {
  const char* name;
  Z (*run)(Z a, Z b, Z c);
};

// NOLINTBEGIN(bugprone-macro-parentheses): expressions
#define OP(name, expression)                                                          \
  {                                                                                   \
    name, [](Z a [[maybe_unused]], Z b [[maybe_unused]], Z c [[maybe_unused]]) -> Z { \
      return expression;                                                              \
    }                                                                                 \
  }

constexpr Op kOps[] = {
    OP("add", a + b),
    OP("sub", a - b),
    OP("mul",
       Z(a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real())),
    OP("div", b == Z(0) ? Z(a.real() / std::abs(b), a.imag() / std::abs(b)) : a / b),
    OP("pow", pow(a, b)),
    OP("neg", -a),
    OP("abs", std::abs(a)),
    OP("conj_physical", std::conj(a)),
    OP("sign", sign(a)),
    OP("sqrt", std::sqrt(a)),
    OP("rsqrt", Z(1) / std::sqrt(a)),
    OP("exp", std::exp(a)),
    OP("exp2", std::exp(a* kLn2)),
    OP("expm1", expm1(a)),
    OP("log", std::log(a)),
    OP("log2", std::log(a) / kLn2),
    OP("log10", std::log(a) / std::numbers::ln10_v<Real>),
    OP("log1p", log1p(a)),
    OP("sin", std::sin(a)),
    OP("cos", std::cos(a)),
    OP("tan", std::tan(a)),
    OP("asin", std::asin(a)),
    OP("acos", std::acos(a)),
    OP("atan", std::atan(a)),
    OP("sinh", std::sinh(a)),
    OP("cosh", std::cosh(a)),
    OP("tanh", std::tanh(a)),
    OP("asinh", std::asinh(a)),
    OP("acosh", std::acosh(a)),
    OP("atanh", std::atanh(a)),
    OP("sigmoid", sigmoid(a)),
    OP("eq", a == b),
    OP("ne", a != b),
    // Orders are those of the real parts, which are magnitudes.
    OP("lt", a.real() < b.real()),
    OP("le", a.real() <= b.real()),
    OP("gt", a.real() > b.real()),
    OP("ge", a.real() >= b.real()),
    OP("isnan", std::isnan(a.real()) || std::isnan(a.imag())),
    OP("logical_and", holds(a) && holds(b)),
    OP("logical_or", holds(a) || holds(b)),
    OP("logical_xor", holds(a) != holds(b)),
    OP("logical_not", !holds(a)),
    OP("where", holds(a) ? b : c),
};
#undef OP
// NOLINTEND(bugprone-macro-parentheses)

const Op* find_op(std::string_view name) {
  for (const Op& op : kOps) {
    if (name == op.name) return &op;
  }
  return nullptr;
}

Z load(mt_dtype dtype, const void* element) {
  if (dtype.code == MT_COMPLEX && dtype.bits == 64) {
    const auto* parts = static_cast<const float*>(element);
    return {parts[0], parts[1]};
  }
  if (dtype.code == MT_COMPLEX) {
    const auto* parts = static_cast<const double*>(element);
    return {parts[0], parts[1]};
  }
  return sdk::visit_dtype(dtype, [&](auto tag) -> Z {
    using From = typename decltype(tag)::type;
    return {sdk::convert<double>(*static_cast<const From*>(element)), 0};
  });
}

// Writes a value rounded once; a real element is the real part of a value without another.
void store(Z value, mt_dtype dtype, void* element) {
  if (dtype.code == MT_COMPLEX && dtype.bits == 64) {
    auto* parts = static_cast<float*>(element);
    parts[0] = static_cast<float>(value.real());
    parts[1] = static_cast<float>(value.imag());
  } else if (dtype.code == MT_COMPLEX) {
    auto* parts = static_cast<double*>(element);
    parts[0] = static_cast<double>(value.real());
    parts[1] = static_cast<double>(value.imag());
  } else {
    sdk::visit_dtype(dtype, [&](auto tag) {
      using To = typename decltype(tag)::type;
      *static_cast<To*>(element) = sdk::convert<To>(static_cast<double>(value.real()));
    });
  }
}

class ComplexPointwise {
 public:
  ComplexPointwise(const mt_program& program, mt_dtype compute)
      : narrow_(compute.bits == 64),
        outputs_(program.outputs, program.outputs + program.num_outputs) {
    if (program.fold != nullptr) throw sdk::Declined{};
    for (int32_t i = 0; i < program.num_nodes; ++i) {
      const mt_node& node = program.nodes[i];
      const std::string_view name = node.op;
      const bool leaf = name == "input" || name == "scalar" || name == "const" || name == "cast";
      if (node.type == MT_TYPE_INDEX) throw sdk::Declined{};
      nodes_.push_back({node, leaf ? nullptr : find_op(name)});
      if (!leaf && nodes_.back().op == nullptr) throw sdk::Declined{};
    }
  }

  void run(const void* args) const {
    std::vector<mt_program_output> wanted;
    for (const mt_program_output& output : outputs_) {
      if (sdk::tensor_at(args, output.offset) != nullptr) wanted.push_back(output);
    }
    if (wanted.empty()) return;
    const std::span<const int64_t> shape =
        sdk::TensorView(sdk::tensor_at(args, wanted[0].offset)).shape();
    struct ComplexOperand {
      int32_t node;
      Elements elements;
      mt_dtype dtype;
    };
    std::vector<ComplexOperand> inputs;
    std::vector<ComplexOperand> outputs;
    std::vector<Z> values(nodes_.size());
    for (size_t i = 0; i < nodes_.size(); ++i) {
      const mt_node& node = nodes_[i].node;
      const std::string_view name = node.op;
      if (name == "input") {
        const sdk::TensorView tensor = sdk::tensor_at(args, node.offset);
        inputs.push_back({static_cast<int32_t>(i), Elements(tensor, shape), tensor.dtype()});
      } else if (name == "scalar") {
        values[i] = in_compute_type(sdk::complex_scalar_at<Z>(args, node));
      } else if (name == "const") {
        values[i] = in_compute_type(node.value);
      }
    }
    for (const mt_program_output& output : wanted) {
      const sdk::TensorView tensor = sdk::tensor_at(args, output.offset);
      outputs.push_back({output.node, Elements(tensor), tensor.dtype()});
    }
    // All of an element's inputs are read before any output is written, so outputs may be inputs.
    for (int64_t e = 0; e < outputs[0].elements.count(); ++e) {
      for (const ComplexOperand& input : inputs) {
        Z& value = values[static_cast<size_t>(input.node)];
        value = load(input.dtype, input.elements[e]);
        const int32_t type = nodes_[static_cast<size_t>(input.node)].node.type;
        value = type == MT_TYPE_BOOL ? Z(holds(value)) : in_compute_type(value);
      }
      for (size_t i = 0; i < nodes_.size(); ++i) evaluate(i, values);
      for (const ComplexOperand& output : outputs) {
        store(values[static_cast<size_t>(output.node)], output.dtype, output.elements[e]);
      }
    }
  }

 private:
  struct Node {
    mt_node node;
    const Op* op;
  };

  Z in_compute_type(Z value) const {
    if (!narrow_) return value;
    return {static_cast<float>(value.real()), static_cast<float>(value.imag())};
  }

  void evaluate(size_t i, std::vector<Z>& values) const {
    const mt_node& node = nodes_[i].node;
    const Op* const op = nodes_[i].op;
    const auto operand = [&](int k) {
      return node.a[k] < 0 ? Z(0) : values[static_cast<size_t>(node.a[k])];
    };
    if (op != nullptr) {
      values[i] = op->run(operand(0), operand(1), operand(2));
    } else if (std::string_view(node.op) == "cast") {
      values[i] = node.type == MT_TYPE_BOOL ? Z(holds(operand(0))) : operand(0);
    }
  }

  bool narrow_;
  std::vector<mt_program_output> outputs_;
  std::vector<Node> nodes_;
};

int run_complex(void* self, mt_ctx* ctx, const void* args) {
  return sdk::guarded(ctx, [&] { static_cast<const ComplexPointwise*>(self)->run(args); });
}

}  // namespace
}  // namespace complex_domain

void compile_complex(const mt_program& program, mt_dtype compute, mt_kernel_entry& kernel) {
  using complex_domain::ComplexPointwise;
  kernel.self = std::make_unique<ComplexPointwise>(program, compute).release();
  kernel.run = &complex_domain::run_complex;
}

}  // namespace mytorch::reference
