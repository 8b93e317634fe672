#include "dispatcher/table/programs.h"

#include <cstring>
#include <string_view>

#include "dispatcher/table/fields.h"

namespace mytorch {
namespace {

bool is(const mt_node& node, const char* op) { return std::strcmp(node.op, op) == 0; }

// The kinds of fold that frame/decompose.cpp expresses by plain reductions.
bool can_decompose_fold(std::string_view kind) {
  return kind == "sum" || kind == "max" || kind == "min" || kind == "welford" ||
         kind == "logsumexp";
}

// Returns whether the program reduces an argument and returns the state, both unchanged.
bool is_plain_reduction(const mt_program& p) {
  return is(p.nodes[p.step], "input") && p.num_outputs == 1 &&
         is(p.nodes[p.outputs[0].node], "state");
}

}  // namespace

bool can_decompose(const OpInfo& op, const void* args) {
  if (op.num_programs == 0) return false;
  const mt_program& p = program_of(op, args);
  if (p.fold != nullptr) return can_decompose_fold(p.fold) && !is_plain_reduction(p);
  // The program of a node operation consists of that one node, unless it has more (`add` with an
  // alpha).
  if (p.num_outputs != 1 || !is(p.nodes[p.outputs[0].node], op.base)) return true;
  int operations = 0;
  for (int i = 0; i < p.num_nodes; ++i) {
    const mt_node& n = p.nodes[i];
    operations += !is(n, "input") && !is(n, "scalar") && !is(n, "const") && !is(n, "cast");
  }
  return operations > 1;
}

}  // namespace mytorch
