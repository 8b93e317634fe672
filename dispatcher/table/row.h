// The words of the generated rows of the operator table (generated/src/table_NN.cpp):
//
//   namespace of_log2 {
//   using Args = mt_args_log2;
//   ...  // kProgram0, by the words of program_row.h
//   constexpr const mt_program* kPrograms[] = {&kProgram0};
//   constexpr ArgInfo kArgs[] = {{.name = "self", .promotes = true, .offset = offsetof(Args,
//   self)}};
//   }
//   constinit const OpInfo ops::log2::info = info_of<ops::log2, of_log2::Args>({
//       .schema = "log2(Tensor self) -> Tensor",
//       .promote = Promote::kFloat,
//       .args = of_log2::kArgs,
//       .programs = of_log2::kPrograms});
//   constinit OpEntry ops::log2::entry(&info);
//
// info_of is that of dispatcher/boxed/info.h.
// Everything is constant, so the table lies in the library's data, and no code fills it.
#pragma once

#include <cstddef>
#include <span>
#include <type_traits>

#include "dispatcher/table/layers.h"
#include "dispatcher/table/op.h"
#include "dispatcher/table/program_row.h"

namespace mytorch::row {

// OutputInfo::dtype of a result that has one type whatever its operands have.
constexpr int8_t always(ScalarType type) { return static_cast<int8_t>(type); }

// The result of most records: one, in the field `out` of the argument struct, if kernels write it.
template <class Args>
inline constexpr OutputInfo kResult = {"result"};
template <class Args>
requires requires { &Args::out; }
inline constexpr OutputInfo kResult<Args> = {"result", offsetof(Args, out)};

// What the record says about an operator. The rest of its OpInfo follows.
struct Row {
  const char* name = nullptr;  // of an operator without an argument struct
  const char* base = nullptr;  // null: the name
  const char* schema = nullptr;
  const char* doc = nullptr;
  uint64_t hash = 0;  // of an operator without an argument struct
  Meaning meaning = Meaning::kComposite;
  Promote promote = Promote::kNone;
  bool dynamic = false;
  bool differentiable = true;
  std::span<const uint16_t> accepts = {};
  std::span<const ArgInfo> args = {};
  std::span<const OutputInfo> outputs = {};  // empty: kResult, if it returns anything
  std::span<const mt_program* const> programs = {};
  std::span<const mt_program* const> complex_programs = {};
  std::span<const mt_program* const> call_programs = {};
  std::span<const OlderSchema> older = {};
};

// The types that are not complex, as bits.
inline constexpr uint16_t kRealTypes = (1 << static_cast<int>(ScalarType::kComplex64)) - 1;
static_assert(is_complex(ScalarType::kComplex64) && !is_complex(ScalarType::kFloat64));

// Adds what follows from the arguments: which of them are operands, and the types of these.
constexpr void add_operands(const Row& row, OpInfo* info) {
  uint16_t types = kRealTypes;  // complex operands take the general path
  for (const ArgInfo& arg : row.args) {
    if (arg.type != ArgType::kTensor && arg.type != ArgType::kOperand) continue;
    const auto i = static_cast<uint32_t>(info->num_inputs++);
    if (arg.promotes) info->input_promotes |= 1u << i;
    if (!arg.promotes) types = 0;
    if (!row.accepts.empty()) types &= row.accepts[i];
  }
  info->uniform_types = types;
}

// The description of an operator with the argument struct `Args`, which is void if there are no
// kernels. It lacks the boxed forms.
template <class Op, class Args>
constexpr OpInfo description(const Row& row) {
  OpInfo info;
  info.name = row.name;
  info.hash = row.hash;
  if constexpr (!std::is_void_v<Args>) {
    info.name = Args::kOperator;
    info.hash = Args::kSchemaHash;
    info.has_kernel = true;
    info.args_size = sizeof(Args);
  }
  info.base = row.base != nullptr ? row.base : info.name;
  info.schema = row.schema;
  info.doc = row.doc;
  info.meaning = row.meaning;
  info.promote = row.promote;
  info.derived = Op::derived;
  info.dynamic = row.dynamic;
  info.differentiable = row.differentiable;
  add_operands(row, &info);
  info.accepts = row.accepts.data();
  info.args = row.args.data();
  info.num_args = static_cast<int32_t>(row.args.size());
  info.outputs = row.outputs.data();
  info.num_outputs = static_cast<int32_t>(row.outputs.size());
  if (row.outputs.empty() && ResultsOf<typename Op::Signature>::size > 0) {
    info.outputs = &kResult<Args>;
    info.num_outputs = 1;
  }
  info.programs = row.programs.data();
  info.complex_programs = row.complex_programs.data();
  info.call_programs = row.call_programs.data();
  info.num_programs = static_cast<int32_t>(row.programs.size());
  info.older = row.older.data();
  info.num_older = static_cast<int32_t>(row.older.size());
  return info;
}

}  // namespace mytorch::row
