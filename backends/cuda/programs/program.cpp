#include "backends/cuda/programs/program.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <complex>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <string_view>

#include "cuda/nodes.h"
#include "mytorch/backend/dtype.h"
#include "mytorch/backend/error.h"
#include "mytorch/backend/tensor.h"

namespace mytorch::cuda {
namespace {

struct Type {
  mt_dtype dtype;
  const char* name;
};
constexpr Type kTypes[] = {
    {{}, ""},
    {sdk::dtype_of<bool>, "b8"},
    {sdk::dtype_of<uint8_t>, "u8"},
    {sdk::dtype_of<int8_t>, "i8"},
    {sdk::dtype_of<int16_t>, "i16"},
    {sdk::dtype_of<int32_t>, "i32"},
    {sdk::dtype_of<int64_t>, "i64"},
    {sdk::dtype_of<sdk::Half>, "f16"},
    {sdk::dtype_of<sdk::BFloat16>, "bf16"},
    {sdk::dtype_of<float>, "f32"},
    {sdk::dtype_of<double>, "f64"},
    {{MT_COMPLEX, 64, 1}, "c64"},
    {{MT_COMPLEX, 128, 1}, "c128"},
};

// Operations whose functions in the prelude take the compute type as a template argument.
constexpr std::string_view kTypedOps[] = {"bitwise_not", "bitwise_left_shift",
                                          "bitwise_right_shift"};
// "bound" and "load" are of fused programs (mytorch/abi_fused.h), whose kernels declare them.
constexpr std::string_view kLeaves[] = {"input", "scalar", "const", "cast",
                                        "count", "state",  "bound", "load"};

constexpr std::string_view kDivisions[] = {"div", "floor_divide", "trunc_divide", "remainder",
                                           "fmod"};

bool among(std::string_view name, std::span<const std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool is_float(Code code) { return code >= kFloat16; }  // or complex

// A number converted to the compute type, in the representation that kernels use.
template <class Number>
uint64_t computed_bits(Number number, Code compute) {
  if (compute == kFloat64) return std::bit_cast<uint64_t>(sdk::convert<double>(number));
  if (is_float(compute)) return std::bit_cast<uint32_t>(sdk::convert<float>(number));
  const int64_t whole = sdk::convert<int64_t>(number);
  const auto low = [](int64_t value) { return static_cast<uint64_t>(value); };
  switch (compute) {
    case kUint8:
      return static_cast<uint8_t>(whole);
    case kInt8:
      return low(static_cast<int8_t>(whole));
    case kInt16:
      return low(static_cast<int16_t>(whole));
    default:
      return low(whole);
  }
}

std::string float_literal(double value, bool is_double) {
  const char* const suffix = is_double ? "" : "f";
  const auto special = [&](unsigned bits, unsigned long long wide) {
    char text[64];
    if (is_double) {
      std::snprintf(text, sizeof(text), "__longlong_as_double(0x%llxLL)", wide);
    } else {
      std::snprintf(text, sizeof(text), "__uint_as_float(0x%xu)", bits);
    }
    return std::string(text);
  };
  const double rounded = is_double ? value : static_cast<float>(value);
  if (std::isnan(rounded)) return special(0x7fc00000u, 0x7ff8000000000000ull);
  if (std::isinf(rounded)) {
    return rounded > 0 ? special(0x7f800000u, 0x7ff0000000000000ull)
                       : special(0xff800000u, 0xfff0000000000000ull);
  }
  char text[64];
  if (rounded == std::floor(rounded) && std::abs(rounded) < 1e6) {
    std::snprintf(text, sizeof(text), "%.1f%s", rounded, suffix);
  } else {
    std::snprintf(text, sizeof(text), "%a%s", rounded, suffix);
  }
  return text;
}

std::string literal(const mt_node& node, Code compute) {
  if (node.type == MT_TYPE_BOOL) return node.value != 0 ? "true" : "false";
  const bool computes = node.type == MT_TYPE_COMPUTE;
  if (computes && is_float(compute)) {
    return float_literal(node.value, compute == kFloat64 || compute == kComplex128);
  }
  const uint64_t bits = computes ? computed_bits(node.value, compute)
                                 : static_cast<uint64_t>(sdk::convert<int64_t>(node.value));
  const int64_t whole = static_cast<int64_t>(bits);
  if (whole == INT64_MIN) return "(-0x7fffffffffffffffLL - 1)";
  return std::to_string(whole) + "LL";
}

}  // namespace

Code code_of_slow(mt_dtype dtype) {
  for (size_t code = 1; code < std::size(kTypes); ++code) {
    if (sdk::same_dtype(kTypes[code].dtype, dtype)) return static_cast<Code>(code);
  }
  throw sdk::Error(MT_ERROR_TYPE, "the cuda backend does not support this dtype");
}
const char* type_name(Code code) { return kTypes[code].name; }
int size_of(Code code) { return kTypes[code].dtype.bits / 8; }
mt_dtype dtype_of_code(Code code) { return kTypes[code].dtype; }

const char* value_name(int32_t type, Code compute) {
  if (type == MT_TYPE_BOOL) return "bool";
  if (type == MT_TYPE_INDEX || compute == kInt64) return "i64";
  if (compute == kFloat64) return "double";
  if (is_complex(compute)) return type_name(compute);
  return is_float(compute) ? "float" : "int";
}

std::string contents_of(const mt_program& program) {
  std::string bytes;
  const auto add = [&](const auto& number) {
    bytes.append(reinterpret_cast<const char*>(&number), sizeof(number));
  };
  const auto add_text = [&](const char* text) { bytes.append(text, std::strlen(text) + 1); };
  add_text(program.name);
  for (const mt_node& node : std::span(program.nodes, static_cast<size_t>(program.num_nodes))) {
    add_text(node.op);
    add(node.type);
    add(node.a);
    add(node.field);
    add(node.component);
    add(node.offset);
    add(node.value);
  }
  add(program.num_nodes);
  for (int32_t i = 0; i < program.num_outputs; ++i) {
    add(program.outputs[i].node);
    add(program.outputs[i].offset);
  }
  add_text(program.fold != nullptr ? program.fold : "");
  add(program.step);
  add(program.dim_offset);
  add(program.dim_field);
  return bytes;
}

Program::Program(const mt_program& program)
    : name(program.name),
      nodes(program.nodes, program.nodes + program.num_nodes),
      fold(program.fold != nullptr ? program.fold : ""),
      step(program.step),
      dim_offset(program.dim_offset),
      dim_field(program.dim_field) {
  base = name.substr(0, name.find('.'));
  ops_.reserve(nodes.size());
  for (int32_t i = 0; i < program.num_nodes; ++i) {
    mt_node& node = nodes[static_cast<size_t>(i)];
    ops_.emplace_back(node.op);
    node.op = ops_.back().c_str();
    const std::string_view op = node.op;
    if (op == "input") inputs.push_back({i, node.offset, node.type, 0});
    if (op == "scalar") scalars.push_back({i, node.offset, node.type, node.field});
    // A newer host may have operations that this backend does not know.
    if (!among(op, kNodeOps) && !among(op, kLeaves)) throw sdk::Declined{};
  }
  for (int32_t i = 0; i < program.num_outputs; ++i) {
    const mt_program_output& output = program.outputs[i];
    const mt_node& node = nodes[static_cast<size_t>(output.node)];
    outputs.push_back({output.node, output.offset, node.type, 0});
  }
}

bool Program::takes(Code compute) const {
  if (!is_float(compute)) return fold != "welford" && fold != "logsumexp";
  if (is_complex(compute)) {  // reductions of complex numbers are those of their parts
    return fold.empty() && std::all_of(nodes.begin(), nodes.end(), [](const mt_node& node) {
             return node.type != MT_TYPE_INDEX &&
                    (among(node.op, kComplexOps) || among(node.op, kLeaves));
           });
  }
  return std::none_of(nodes.begin(), nodes.end(), [](const mt_node& node) {
    return node.type == MT_TYPE_COMPUTE && std::string_view(node.op).starts_with("bitwise_");
  });
}

Code Program::computes_in(Code compute) const {
  if (fold != "sum" || !is_float(compute) || is_complex(compute)) return compute;
  const std::string_view folded = nodes[static_cast<size_t>(step)].op;
  return folded == "input" || folded == "cast" ? compute : kFloat64;
}

bool Program::divides(Code compute) const {
  return std::any_of(nodes.begin(), nodes.end(), [&](const mt_node& node) {
    return among(node.op, kDivisions) && (node.type != MT_TYPE_COMPUTE || !is_float(compute));
  });
}

std::vector<bool> Program::needed(std::span<const int32_t> roots) const {
  std::vector<bool> needed(nodes.size(), false);
  for (const int32_t root : roots) needed[static_cast<size_t>(root)] = true;
  for (size_t i = nodes.size(); i-- > 0;) {
    if (!needed[i]) continue;
    for (const int32_t operand : nodes[i].a) {
      if (operand >= 0) needed[static_cast<size_t>(operand)] = true;
    }
  }
  return needed;
}

// Returns the expression of a sum or difference of which one operand is a product, as one fused
// operation; empty for other nodes.
std::string Program::fused_text(const mt_node& node) const {
  const bool difference = std::string_view(node.op) == "sub";
  if (!difference && std::string_view(node.op) != "add") return {};
  for (int side = 0; side < 2; ++side) {
    const mt_node& product = nodes[static_cast<size_t>(node.a[side])];
    if (std::string_view(product.op) != "mul") continue;
    const std::string other = "v" + std::to_string(node.a[1 - side]);
    return std::string("node::multiply_add(") + (difference && side == 1 ? "-v" : "v") +
           std::to_string(product.a[0]) + ", v" + std::to_string(product.a[1]) + ", " +
           (difference && side == 0 ? "-" : "") + other + ")";
  }
  return {};
}

std::string Program::text(const std::vector<bool>& wanted, Code compute) const {
  std::string text;
  for (size_t i = 0; i < nodes.size(); ++i) {
    const mt_node& node = nodes[i];
    const std::string_view op = node.op;
    if (!wanted[i] || (op != "const" && op != "cast" && among(op, kLeaves))) continue;
    const std::string value = value_name(node.type, compute);
    const std::string c = type_name(compute);
    std::string right;
    if (op == "const") {
      right = literal(node, compute);
    } else if (op == "cast") {
      const std::string from = "v" + std::to_string(node.a[0]);
      right = node.type == MT_TYPE_COMPUTE ? "cast<" + c + ">(" + from + ")"
                                           : "convert<" + value + ">(" + from + ")";
    } else if (node.type == MT_TYPE_COMPUTE && is_float(compute) && !is_complex(compute) &&
               !fused_text(node).empty()) {
      right = fused_text(node);
    } else {
      if (among(op, kDivisions) && (node.type != MT_TYPE_COMPUTE || !is_float(compute))) {
        text += "  if (v" + std::to_string(node.a[1]) + " == 0) p.faults.note();\n";
      }
      right = "node::" + std::string(op);
      if (among(op, kTypedOps)) right += "<" + c + ">";
      right += "(";
      for (int k = 0; k < 3 && node.a[k] >= 0; ++k) {
        right += (k == 0 ? "v" : ", v") + std::to_string(node.a[k]);
      }
      right += ")";
      const bool narrow = compute == kUint8 || compute == kInt8 || compute == kInt16;
      if (narrow && node.type == MT_TYPE_COMPUTE) right = "wrap<" + c + ">(" + right + ")";
    }
    text += "  const " + value + " v" + std::to_string(i) + " = " + right + ";\n";
  }
  return text;
}

uint64_t number_bits(const void* args, const Program::Argument& scalar, Code compute) {
  mt_node node{};
  node.field = scalar.field;
  node.offset = scalar.offset;
  if (scalar.type == MT_TYPE_COMPUTE && is_float(compute)) {
    return computed_bits(sdk::scalar_at<double>(args, node), compute);
  }
  const int64_t whole = sdk::scalar_at<int64_t>(args, node);
  if (scalar.type == MT_TYPE_BOOL) return whole != 0;
  return scalar.type == MT_TYPE_INDEX ? static_cast<uint64_t>(whole)
                                      : computed_bits(whole, compute);
}

namespace {

void write_complex(std::complex<double> z, Code compute, Params& params) {
  if (compute == kComplex128) {
    params.word(std::bit_cast<uint64_t>(z.real()));
    params.word(std::bit_cast<uint64_t>(z.imag()));
  } else {
    params.word(computed_bits(z.real(), kFloat32) | computed_bits(z.imag(), kFloat32) << 32);
  }
}

}  // namespace

void write_number(const void* args, const Program::Argument& scalar, Code compute, Params& params) {
  if (scalar.type != MT_TYPE_COMPUTE || !is_complex(compute)) {
    return params.word(number_bits(args, scalar, compute));
  }
  mt_node node{};
  node.field = scalar.field;
  node.offset = scalar.offset;
  write_complex(sdk::complex_scalar_at<std::complex<double>>(args, node), compute, params);
}

void write_operand(const mt_tensor* operand, int32_t type, Code compute, Params& params) {
  if (type != MT_TYPE_COMPUTE || !is_complex(compute)) [[likely]] {
    return params.word(operand_bits(operand, type, compute));
  }
  const sdk::TensorView element(operand);
  if (!sdk::is_complex(element.dtype())) {
    write_complex(sdk::scalar_value<double>(operand), compute, params);
  } else if (element.dtype().bits == 64) {
    const auto* parts = element.data<const float>();
    write_complex({parts[0], parts[1]}, compute, params);
  } else {
    const auto* parts = element.data<const double>();
    write_complex({parts[0], parts[1]}, compute, params);
  }
}

uint64_t count_bits(int64_t count, int32_t type, Code compute) {
  return type == MT_TYPE_COMPUTE ? computed_bits(count, compute) : static_cast<uint64_t>(count);
}

uint64_t operand_bits(const mt_tensor* operand, int32_t type, Code compute) {
  if (type == MT_TYPE_BOOL) return sdk::scalar_value<bool>(operand) ? 1 : 0;
  if (type == MT_TYPE_INDEX) {
    return static_cast<uint64_t>(sdk::scalar_value<int64_t>(operand));
  }
  // Numbers are int64 or double, and the compute type is nearly always float32.
  // Beside 16-bit floats, numbers keep the precision of float32.
  const bool number = operand->storage == nullptr;
  if (compute == kFloat32 || (number && (compute == kFloat16 || compute == kBfloat16))) {
    return std::bit_cast<uint32_t>(sdk::scalar_value<float>(operand));
  }
  return sdk::visit_dtype(kTypes[compute].dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T value = sdk::scalar_value<T>(operand);
    if constexpr (sdk::is_float_type<T>) {
      return computed_bits(sdk::convert<double>(value), compute);
    } else {
      return computed_bits(sdk::convert<int64_t>(value), compute);
    }
  });
}

}  // namespace mytorch::cuda
