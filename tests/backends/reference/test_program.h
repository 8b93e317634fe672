// Handwritten programs, and the argument struct that they share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "tests/backends/reference/fake_host.h"

namespace mytorch::testing {

inline constexpr int32_t C = MT_TYPE_COMPUTE;

struct ProgramArgs {
  mt_args_header header{};
  const mt_tensor* in[3] = {};
  mt_scalar scalar{};
  int64_t integer = 0;
  double real = 0;
  mt_int_list dims{};
  int64_t dim = 0;
  mt_optional_int optional_dim{};
  int64_t keepdim = 0;
  const mt_tensor* out[3] = {};
};

class TestProgram {
 public:
  explicit TestProgram(const char* name = "test.overload") {
    program_.size = sizeof(mt_program);
    program_.name = name;
  }

  int32_t input(int k, int32_t type = MT_TYPE_COMPUTE) {
    mt_node node = make("input", type);
    node.offset = static_cast<uint32_t>(offsetof(ProgramArgs, in) + sizeof(void*) * k);
    return add(node);
  }
  int32_t scalar(int32_t field = MT_FIELD_SCALAR, int32_t type = MT_TYPE_COMPUTE) {
    mt_node node = make("scalar", type);
    node.field = field;
    node.offset = static_cast<uint32_t>(field == MT_FIELD_INT     ? offsetof(ProgramArgs, integer)
                                        : field == MT_FIELD_FLOAT ? offsetof(ProgramArgs, real)
                                                                  : offsetof(ProgramArgs, scalar));
    return add(node);
  }
  int32_t constant(double value, int32_t type = MT_TYPE_COMPUTE) {
    mt_node node = make("const", type);
    node.value = value;
    return add(node);
  }
  int32_t state(int32_t component, int32_t type = MT_TYPE_COMPUTE) {
    mt_node node = make("state", type);
    node.component = component;
    return add(node);
  }
  int32_t op(const char* name, int32_t type, int32_t a = -1, int32_t b = -1, int32_t c = -1) {
    mt_node node = make(name, type);
    node.a[0] = a;
    node.a[1] = b;
    node.a[2] = c;
    return add(node);
  }
  TestProgram& output(int k, int32_t node) {
    outputs_.push_back(
        {node, static_cast<uint32_t>(offsetof(ProgramArgs, out) + sizeof(void*) * k)});
    return *this;
  }
  TestProgram& fold(const char* kind, int32_t step, int32_t dim_field) {
    program_.fold = kind;
    program_.step = step;
    program_.dim_field = dim_field;
    program_.dim_offset = static_cast<uint32_t>(
        dim_field == MT_DIM_LIST           ? offsetof(ProgramArgs, dims)
        : dim_field == MT_DIM_OPTIONAL_INT ? offsetof(ProgramArgs, optional_dim)
                                           : offsetof(ProgramArgs, dim));
    program_.keepdim_offset = offsetof(ProgramArgs, keepdim);
    return *this;
  }

  // Compiles for a compute type and runs. Returns "" or the error message.
  std::string run(ProgramArgs& args, mt_dtype compute) {
    program_.nodes = nodes_.data();
    program_.num_nodes = static_cast<int32_t>(nodes_.size());
    program_.outputs = outputs_.data();
    program_.num_outputs = static_cast<int32_t>(outputs_.size());
    // KernelEntries live forever; a global keeps them reachable, as leak checkers require.
    static auto& compiled = *new std::deque<mt_kernel_entry>;
    mt_kernel_entry& kernel = compiled.emplace_back();
    const int status =
        reference().compile(reference().self, &program_, compute, nullptr, 0, &kernel);
    if (status != MT_OK) return "compile: status " + std::to_string(status);
    args.header.size = sizeof(ProgramArgs);
    args.header.compute = compute;
    TestContext context;
    const int result = kernel.run(kernel.self, context.get(), &args);
    return result == MT_OK ? "" : "status " + std::to_string(result) + ": " + context.error;
  }

 private:
  static mt_node make(const char* op, int32_t type) {
    mt_node node{};
    node.op = op;
    node.type = type;
    node.a[0] = node.a[1] = node.a[2] = -1;
    return node;
  }
  int32_t add(const mt_node& node) {
    nodes_.push_back(node);
    return static_cast<int32_t>(nodes_.size()) - 1;
  }

  mt_program program_{};
  std::vector<mt_node> nodes_;
  std::vector<mt_program_output> outputs_;
};

}  // namespace mytorch::testing
