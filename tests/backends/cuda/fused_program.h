// A fused program over the lists of a test.
#pragma once

#include <vector>

#include "mytorch/abi_fused.h"

namespace mytorch::testing {

// Returns a program that refers to the lists. Its inputs are the values of that kind.
inline mt_fused_program fused_program(const char* name, const std::vector<mt_fused_value>& values,
                                      const std::vector<mt_fused_call>& calls,
                                      const std::vector<int32_t>& outputs, bool exact = false) {
  mt_fused_program program{};
  program.size = sizeof(program);
  program.name = name;
  program.flags = exact ? uint32_t{MT_FUSED_EXACT} : 0;
  for (const mt_fused_value& v : values) {
    program.num_inputs += v.kind == MT_FUSED_INPUT || v.kind == MT_FUSED_TABLE ? 1 : 0;
  }
  program.num_values = static_cast<int32_t>(values.size());
  program.num_calls = static_cast<int32_t>(calls.size());
  program.num_outputs = static_cast<int32_t>(outputs.size());
  program.value_size = sizeof(mt_fused_value);
  program.call_size = sizeof(mt_fused_call);
  program.values = values.data();
  program.calls = calls.data();
  program.outputs = outputs.data();
  return program;
}

}  // namespace mytorch::testing
