// The description of an operator, OpInfo, generated from its record, and its row in the operator
// table, OpEntry.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "mytorch/abi.h"
#include "mytorch/call.h"
#include "mytorch/dtype.h"
#include "mytorch/thread_state.h"

namespace mytorch {

enum class ArgType : uint8_t {
  kTensor,
  kTensorList,
  kOperand,
  kScalar,
  kInt,
  kBool,
  kFloat,
  kIntList,
  kFloatList,
  kStr,
  kScalarType,
  kDevice,
  kGenerator,
  kHandle,
};

enum class Meaning : uint8_t { kPointwise, kReduce, kView, kComposite, kPrimitive };

// How the types of the operands determine the compute type and the result type (docs/records.md,
// "promote").
enum class Promote : uint8_t { kNone, kSame, kFloat, kCompare, kWiden, kFirst };

inline constexpr uint32_t kNoField = UINT32_MAX;

struct ArgInfo {
  const char* name = nullptr;
  ArgType type = ArgType::kTensor;
  bool optional = false;
  bool kw_only = false;
  bool written = false;   // Tensor(a!)
  bool promotes = false;  // takes part in type promotion and is converted to the compute type
  const char* default_text = nullptr;  // as in the schema; null if the argument must be given
  uint32_t offset = kNoField;          // of its field in the argument struct
};

struct OutputInfo {
  const char* name = nullptr;
  uint32_t offset = kNoField;  // none if the kernel has no such output (a view, a written argument)
  int8_t dtype = -1;           // a fixed ScalarType, -1: the promoted type, or kRealResult
};
// The promoted type of real operands, and the type of its parts of complex ones: `abs`.
inline constexpr int8_t kRealResult = -2;

// The schema of an earlier release, against which kernels may have been compiled.
struct OlderSchema {
  uint64_t hash;
  uint32_t first_new;  // offset of the first field of the argument struct that it lacks
};

struct OpInfo {
  const char* name = nullptr;  // "add.Tensor"
  const char* base = nullptr;  // "add"
  const char* schema = nullptr;
  const char* doc = nullptr;
  uint64_t hash = 0;
  Meaning meaning = Meaning::kPointwise;
  Promote promote = Promote::kNone;
  bool has_kernel = false;  // kernels may be registered for it
  bool derived = false;     // the derivative of another record
  bool dynamic = false;
  bool differentiable = false;
  uint32_t input_promotes = 0;  // bit i: the i-th tensor argument takes part in promotion
  int16_t num_inputs = 0;       // tensor arguments
  // Pointwise: the types, as bits, that all operands may have together; 0 if an operand takes no
  // part in promotion.
  uint16_t uniform_types = 0;
  const uint16_t* accepts = nullptr;  // of each tensor argument, the types as bits; null: any
  const ArgInfo* args = nullptr;
  int32_t num_args = 0;
  const OutputInfo* outputs = nullptr;
  int32_t num_outputs = 0;
  uint32_t args_size = 0;  // of the argument struct
  // One per variant, null if the record has no program; then those for a complex compute type, and
  // those to differentiate, with operators, if they are others.
  const mt_program* const* programs = nullptr;
  const mt_program* const* complex_programs = nullptr;
  const mt_program* const* call_programs = nullptr;
  int32_t num_programs = 0;
  // The function with one boxed value per argument, in schema order, and the in-place and out=
  // forms, null if the operator has none. The out= form takes its outputs first.
  void (*boxed)(const Value* args, std::vector<Value>* results) = nullptr;
  void (*boxed_inplace)(const Value* args, std::vector<Value>* results) = nullptr;
  void (*boxed_out)(const Value* args, std::vector<Value>* results) = nullptr;
  // Of a derived gradient: computes the wanted results alone.
  void (*boxed_wanted)(const bool* wanted, const Value* args,
                       std::vector<Value>* results) = nullptr;
  const OlderSchema* older = nullptr;
  int32_t num_older = 0;
  const struct CustomOperator* custom = nullptr;  // of operators registered at run time
};

// A kernel, ready to be called.
struct BoundKernel {
  mt_run_fn run;
  void* self;
};

// The forms of an operator. A record that writes lists of tensors has the first alone.
enum Form : int { kFunction, kInplace, kOut };
inline constexpr int kNumForms = 3;

struct OpState;  // kernels, owned by choice/

struct OpEntry {
  // One slot per device type, never null: the kernel, if it is the only one and takes every call;
  // the choice between kernels; or, if there is no kernel, one that declines.
  std::atomic<const BoundKernel*> slots[kMaxDeviceTypes] = {
      {&kDeclines}, {&kDeclines}, {&kDeclines}, {&kDeclines},
      {&kDeclines}, {&kDeclines}, {&kDeclines}, {&kDeclines}};
  static_assert(kMaxDeviceTypes == 8);
  // A column per layer, in the order of LayerBits: one wrapper per form, with the form's type; null
  // if the layer ignores the form.
  void* wrappers[kNumLayers][kNumForms] = {};
  const OpInfo* info = nullptr;
  std::atomic<OpState*> state{nullptr};

  constexpr explicit OpEntry(const OpInfo* info_) : info(info_) {}
  static const BoundKernel kDeclines;  // returns MT_DECLINED
};

struct OpAlias {
  const char* alias;
  const char* name;
};

// The generated table: every operator of ops.yaml.
struct OpTable {
  OpEntry* const* entries;
  int32_t size;
  const OpAlias* aliases;
  int32_t num_aliases;
};
extern const OpTable kGeneratedOps;

// Returns the operator of a name ("add.Tensor"), including those registered at run time; null if
// there is none.
OpEntry* find_op(std::string_view full_name);
// Returns all overloads of a base name such as "add", or of an alias such as "absolute", in the
// order of the records.
std::vector<OpEntry*> find_overloads(std::string_view base);
std::vector<OpEntry*> all_ops();
// Adds an operator for the life of the process. Throws Error(kValue) if the name is taken.
void add_op(OpEntry& entry);
// Removes an operator that add_op() added and that was never called. It stays in memory.
void remove_op(OpEntry& entry);

}  // namespace mytorch
