// A program built in a test, run by cpu-openmp or by the reference.
#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <vector>

#include "tests/backends/cpu-openmp/cpu_backend.h"
#include "tests/backends/reference/test_program.h"

namespace mytorch::testing {

class BuiltProgram {
 public:
  explicit BuiltProgram(const char* name = "test.overload") { program_.name = name; }

  int32_t input(int k, int32_t type = MT_TYPE_COMPUTE) {
    return add("input", type, offsetof(ProgramArgs, in) + sizeof(void*) * static_cast<size_t>(k));
  }
  int32_t scalar() { return add("scalar", MT_TYPE_COMPUTE, offsetof(ProgramArgs, scalar)); }
  int32_t constant(double value) {
    const int32_t node = add("const", MT_TYPE_COMPUTE, 0);
    nodes_.back().value = value;
    return node;
  }
  int32_t state(int component, int32_t type = MT_TYPE_COMPUTE) {
    const int32_t node = add("state", type, 0);
    nodes_.back().component = component;
    return node;
  }
  int32_t op(const char* name, int32_t type, int32_t a = -1, int32_t b = -1, int32_t c = -1) {
    const int32_t node = add(name, type, 0);
    mt_node& added = nodes_.back();
    added.a[0] = a;
    added.a[1] = b;
    added.a[2] = c;
    return node;
  }
  BuiltProgram& output(int k, int32_t node) {
    outputs_.push_back({node, static_cast<uint32_t>(offsetof(ProgramArgs, out) +
                                                    sizeof(void*) * static_cast<size_t>(k))});
    return *this;
  }
  BuiltProgram& fold(const char* kind, int32_t step) {
    program_.fold = kind;
    program_.step = step;
    program_.dim_field = MT_DIM_LIST;
    program_.dim_offset = offsetof(ProgramArgs, dims);
    program_.keepdim_offset = offsetof(ProgramArgs, keepdim);
    return *this;
  }

  // Returns "" or the error message.
  std::string run(const mt_backend& backend, ProgramArgs& args, mt_dtype compute, int threads = 1) {
    program_.size = sizeof(program_);
    program_.nodes = nodes_.data();
    program_.num_nodes = static_cast<int32_t>(nodes_.size());
    program_.outputs = outputs_.data();
    program_.num_outputs = static_cast<int32_t>(outputs_.size());
    static std::deque<mt_kernel_entry> compiled;  // kernels live forever
    mt_kernel_entry& kernel = compiled.emplace_back();
    if (backend.compile(backend.self, &program_, compute, nullptr, 0, &kernel) != MT_OK) {
      return "declined";
    }
    args.header.size = sizeof(args);
    args.header.compute = compute;
    TestContext context(threads);
    const int status = kernel.run(kernel.self, context.get(), &args);
    return status == MT_OK ? "" : "status " + std::to_string(status) + ": " + context.error;
  }

 private:
  int32_t add(const char* op, int32_t type, size_t offset) {
    mt_node node{};
    node.op = op;
    node.type = type;
    node.a[0] = node.a[1] = node.a[2] = -1;
    node.offset = static_cast<uint32_t>(offset);
    nodes_.push_back(node);
    return static_cast<int32_t>(nodes_.size()) - 1;
  }

  mt_program program_{};
  std::vector<mt_node> nodes_;
  std::vector<mt_program_output> outputs_;
};

}  // namespace mytorch::testing
