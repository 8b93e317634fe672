// Batching rules: how an operator on batched tensors is computed from their values.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "autograd/vmap/batched.h"
#include "dispatcher/table/op.h"
#include "mytorch/call.h"

namespace mytorch::autograd::batch {

// The tensors of a call: whether some are batched at the running level, and whether some of these
// require gradients.
struct BatchedOperands {
  bool batched = false;
  bool recorded = false;
  void add(const TensorImpl* impl, const char* op) {
    if (find(impl, op) == nullptr) return;
    batched = true;
    recorded = recorded || (layer_flags(impl) & kLayerAutograd) != 0;
  }
};

class BatchedCall;
// Computes `results` from the parts of a call, outside of the running level. Returns false, without
// having done anything, for calls that it does not cover.
using BatchRule = bool (*)(BatchedCall& call);

// Returns the rule of an operator, or null: its body or a loop then computes it.
BatchRule find_rule(const OpInfo& op);
// Returns whether a rule divides by the number of examples, or takes one of them.
bool needs_examples(BatchRule rule);

// A tensor argument: its value, or an unbatched tensor.
struct BatchedArg {
  Tensor tensor;
  bool batched = false;  // dimension 0 is the batch dimension
  int64_t rank = 0;      // the number of dimensions of an example
};

// A call of an operator on batched tensors.
class BatchedCall {
 public:
  // `args` has a value for each argument of the schema.
  BatchedCall(const OpInfo& op, std::vector<Value> args);

  // Computes the results by the rule if it covers the call, else by the body, else for each
  // example.
  std::vector<Value> run(BatchRule rule);

  // ---- for rules ----
  std::string_view name() const { return op.base; }
  int64_t size() const { return level_->size; }
  bool same_randomness() const { return level_->randomness == Randomness::kSame; }
  // Throws NeedsLoop in the body of a composite, else Error(kUnsupported) with the message.
  [[noreturn]] void refuse(const char* message) const;
  // Returns the number of an argument, or -1.
  int find(std::string_view arg) const;
  // Returns whether the argument is a tensor that is given.
  bool has(int arg) const { return arg >= 0 && parts[arg].size() == 1 && !is_list(arg); }
  BatchedArg& part(int arg) { return parts[arg][0]; }
  BatchedArg& part(std::string_view arg) { return part(find(arg)); }
  bool is_list(int arg) const { return op.args[arg].type == ArgType::kTensorList; }
  // Returns the parts of all tensor arguments, those of lists included.
  std::vector<BatchedArg*> all();
  BatchedArg& first() { return *all().front(); }
  // Return an argument that is not a tensor.
  int64_t integer(int arg) const { return args[arg].scalar().to_int(); }
  const std::vector<int64_t>& ints(int arg) const {
    return std::get<std::vector<int64_t>>(args[arg].variant());
  }
  // Gives a part a batch dimension, by repeating it, or as many dimensions as an example of `rank`
  // dimensions has, by dimensions of size 1 in front of its own.
  void make_batched(BatchedArg& part) const;
  void raise(BatchedArg& part, int64_t rank) const;
  // Leaves out an optional tensor.
  void drop(int arg) {
    parts[arg].clear();
    args[arg] = Value();
  }
  // Calls the operator with the parts and arguments.
  void invoke_parts();
  Tensor result(size_t i = 0) const { return results[i].tensor(); }

  const OpInfo& op;
  std::vector<Value> args;  // without the tensors
  std::vector<std::vector<BatchedArg>>
      parts;                   // of each argument; empty for those that are no tensors
  std::vector<Value> results;  // with batch dimensions, unless `shared`
  bool shared = false;
  int shared_result = -1;  // one result that is shared while the others are not

  std::function<void(const Value* args, std::vector<Value>* results)> invoke;
  std::function<void(std::vector<Value>* results)> body;  // empty if there is none
  // Gradients inside vmap need the body, since neither a rule nor a loop records at this level.
  bool recorded_by_body = false;

 private:
  bool draws() const;
  void check_randomness() const;
  std::vector<Value> values() const;
  std::vector<Value> wrapped();
  Value wrapped(const Value& result, bool is_shared) const;
  std::vector<Value> loop();

  std::vector<Tensor> originals_;  // the batched tensors among the arguments
  const Level* level_;
  int bodies_;
  bool any_dim_ = false;
};

// Computes an in-place form (outs = 1) or an out= form by the function, and writes the results into
// the outputs, which are the first `outs` arguments.
void write_form(const OpInfo& op, int outs, bool inplace, const std::vector<Value>& args);

}  // namespace mytorch::autograd::batch
