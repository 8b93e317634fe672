// A plan: a compiled primitive, and what has to happen to each operand before and after it. It is
// shared between threads and never changes.
//
// Where the primitive chose a layout of its own for an operand, the plan has a reorder between that
// and the layout the operand came in. Weights may stay reordered from call to call
// (packed_weights.h).
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "backends/cpu-onednn/dnnl.h"
#include "mytorch/backend.h"

namespace mytorch::onednn {

// What a call brings for an operand of a plan.
struct Data {
  Data(void* memory) : pointer(memory) {}  // NOLINT: memory is meant to convert
  Data(const sdk::TensorView& tensor)      // NOLINT: as are tensors, and absent ones
      : pointer(tensor ? tensor.raw() : nullptr),
        storage(tensor ? tensor.get()->storage : nullptr) {}
  Data(const mt_tensor* tensor) : Data(sdk::TensorView(tensor)) {}  // NOLINT

  void* pointer;
  const mt_storage* storage = nullptr;
};

// Primitives share nothing that they write to: scratch memory is the caller's, so that any thread
// may run any plan.
Attr attributes();

class Plan {
 public:
  // Declines the call where oneDNN has only its reference implementation.
  explicit Plan(const Description& description);

  // The operands in the order in which calls give their data. `given` is the layout they come in;
  // an empty one is of an operand that is absent.
  void input(int argument, const Desc& given) { add(argument, given, Role::kInput); }
  // One at most.
  void weights(int argument, const Desc& given) { add(argument, given, Role::kWeights); }
  void output(int argument, const Desc& given) { add(argument, given, Role::kOutput); }

  // For tests and messages.
  std::string implementation() const { return description_.impl_info_str(); }
  int conversions() const;

 private:
  friend class Call;
  enum class Role { kInput, kWeights, kOutput };
  struct Operand {
    int argument;
    Role role;
    Desc given, wanted;
    dnnl::primitive reorder;  // none where the two are the same
    Desc reorder_scratchpad;
  };

  void add(int argument, const Desc& given, Role role);

  Description description_;
  dnnl::primitive primitive_;
  Desc scratchpad_;
  std::vector<Operand> operands_;
};

// A plan bound to one thread: with the objects that oneDNN wants memory wrapped in, which are
// pointed at each call's data rather than made anew.
class Call {
 public:
  explicit Call(const Plan& plan);
  void run(mt_ctx& ctx, std::span<const Data> data);

 private:
  struct Operand {
    dnnl::memory given, wanted;
    size_t place = 0;    // among the arguments
    size_t scratch = 0;  // where in scratch memory it is converted
  };
  dnnl::memory converted(char* scratch, size_t i, const Data& data);

  const Plan& plan_;
  std::vector<Operand> operands_;
  dnnl::memory scratchpad_;
  std::vector<dnnl_exec_arg_t> arguments_;
  size_t scratchpad_at_ = 0, reorders_at_ = 0, scratch_bytes_ = 0;  // in scratch memory
};

}  // namespace mytorch::onednn
