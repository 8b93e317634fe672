// A schema read at run time, in the grammar of ops.yaml: "lib::op(Tensor x, *, float alpha=1) ->
// Tensor".
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "dispatcher/table/op.h"

namespace mytorch {

struct Schema {
  std::string name;  // "lib::op.overload"
  std::string base;  // "lib::op"
  uint64_t hash = 0;
  std::vector<ArgInfo> args;
  std::vector<OutputInfo> outputs;
  uint32_t args_size = 0;  // of the argument struct: the arguments in order, then the results
  int16_t num_inputs = 0;
  std::deque<std::string> strings;  // the names above point into these
};

// Throws Error(kValue) that quotes the schema and names the part that does not parse.
Schema parse_schema(const std::string& text);

}  // namespace mytorch
