#include "graph/fusion/fused_op.h"

#include <bit>
#include <mutex>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "dispatcher/table/fields.h"
#include "graph/steps/plan_kernel.h"

namespace mytorch::graph {
namespace {

uint64_t fnv1a(const std::string& text) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

// Returns a text that is equal for equal programs.
std::string text_of(const FusedProgram& program) {
  std::string text = program.mode() == CompileMode::kExact ? "exact\n" : "";
  const auto number = [&](auto x) { absl::StrAppend(&text, x, " "); };
  for (const mt_fused_value& value : program.values()) {
    number(value.kind);
    number(value.row);
    number(dtype_bits(value.dtype));
    number(std::bit_cast<uint64_t>(value.number));
  }
  for (const FusedProgram::FusedCall& call : program.calls()) {
    // Programs of records live forever.
    absl::StrAppend(&text, "\n", call.program->name, " ", call.program->variant, " ",
                    reinterpret_cast<uintptr_t>(call.program), " ");
    number(dtype_bits(call.compute));
    for (const int32_t value : call.inputs) number(value);
    for (const mt_scalar& scalar : call.scalars) {
      number(scalar.kind);
      number(scalar.v.i);
    }
    for (const int32_t value : call.results) number(value);
  }
  text += "\nout ";
  for (const auto& [operand, value] : program.outputs()) number(value);
  return text;
}

}  // namespace

FusedOp::FusedOp(const Backend& backend, const FusedProgram& program, uint64_t hash)
    : name_(program.name()), values_(program.values()), kept_(program.calls()), entry_(&info_) {
  for (const FusedProgram::FusedCall& call : kept_) {
    calls_.push_back({call.program, call.compute, 0, call.inputs.data(), call.scalars.data(),
                      call.results.data()});
  }
  for (const auto& [operand, value] : program.outputs()) output_values_.push_back(value);
  const size_t inputs = program.inputs().size(), operands = inputs + output_values_.size();
  names_.reserve(operands);
  for (size_t i = 0; i < operands; ++i) {
    names_.push_back(i < inputs ? absl::StrCat("in", i) : absl::StrCat("out", i - inputs));
    if (i < inputs) {
      args_.push_back({.name = names_[i].c_str(), .offset = offset_of(i)});
    } else {
      outputs_.push_back({names_[i].c_str(), offset_of(i), -1});
    }
  }
  program_.size = sizeof(mt_fused_program);
  program_.name = name_.c_str();
  program_.hash = hash;
  program_.flags = program.mode() == CompileMode::kExact ? uint32_t{MT_FUSED_EXACT} : 0;
  program_.num_inputs = static_cast<int32_t>(inputs);
  program_.num_values = static_cast<int32_t>(values_.size());
  program_.num_calls = static_cast<int32_t>(calls_.size());
  program_.num_outputs = static_cast<int32_t>(output_values_.size());
  program_.value_size = sizeof(mt_fused_value);
  program_.call_size = sizeof(mt_fused_call);
  program_.values = values_.data();
  program_.calls = calls_.data();
  program_.outputs = output_values_.data();
  info_.name = info_.base = name_.c_str();
  info_.schema = info_.doc = "";
  info_.hash = hash;
  info_.meaning = Meaning::kPrimitive;
  info_.promote = Promote::kNone;
  info_.num_inputs = static_cast<int16_t>(inputs);
  info_.args = args_.data();
  info_.num_args = static_cast<int32_t>(args_.size());
  info_.outputs = outputs_.data();
  info_.num_outputs = static_cast<int32_t>(outputs_.size());
  info_.args_size = offset_of(operands);
  kernel_.backend = &backend;
  kernel_.compiled = true;
}

bool FusedOp::compile() {
  const mt_backend& backend = kernel_.backend->abi;
  kernel_.abi.size = sizeof(mt_kernel_entry);
  kernel_.abi.op = info_.name;
  kernel_.abi.hash = info_.hash;
  return backend.compile_fused(backend.self, &program_, &kernel_.abi) == MT_OK &&
         kernel_.abi.run != nullptr;
}

const FusedOp* FusedOp::find(const Backend& backend, const FusedProgram& program) {
  static std::mutex mutex;
  static auto* const known = new absl::flat_hash_map<std::string, std::unique_ptr<FusedOp>>;
  const std::string text = text_of(program);
  const std::lock_guard<std::mutex> lock(mutex);
  const auto [at, added] = known->try_emplace(absl::StrCat(backend.name, " ", text), nullptr);
  if (added) {
    std::unique_ptr<FusedOp> made(new FusedOp(backend, program, fnv1a(text)));
    if (made->compile()) at->second = std::move(made);
  }
  return at->second.get();
}

void FusedOp::run(int slot, mt_ctx* ctx, const void* args) const {
  run_plan_kernel(entry_, kernel_, slot, ctx, args);
}

}  // namespace mytorch::graph
