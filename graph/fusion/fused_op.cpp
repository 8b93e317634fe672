#include "graph/fusion/fused_op.h"

#include <bit>
#include <list>
#include <mutex>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "dispatcher/table/fields.h"

namespace mytorch::graph {
namespace {

uint64_t fnv1a(std::string_view text) {
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

// The operators by the texts of their programs. It refers to those that were asked for last, and
// knows all others that live. Plans end on any thread, so an operator may be about to leave when
// its program is asked for again; it is then made anew.
class FusedOp::Table {
 public:
  static Table& instance() {
    static Table* const all = new Table;  // plans may outlive main
    return *all;
  }

  std::shared_ptr<const FusedOp> find(const Backend& backend, const FusedProgram& program) {
    std::string text = absl::StrCat(backend.name, " ", text_of(program));
    // These are destroyed without the lock, which an operator takes when it leaves.
    std::shared_ptr<const FusedOp> op;
    Known last;
    const std::lock_guard<std::mutex> lock(mutex_);
    if (const auto at = kept_.find(text); at != kept_.end()) {
      order_.splice(order_.begin(), order_, at->second);
      return at->second->op;
    }
    if (const auto at = living_.find(text); at != living_.end()) op = at->second.lock();
    if (op == nullptr) op = make(backend, program, text);
    order_.push_front({std::move(text), op});
    kept_[order_.front().text] = order_.begin();
    if (order_.size() > kKept) {
      last = std::move(order_.back());
      kept_.erase(last.text);
      order_.pop_back();
    }
    return op;
  }
  size_t count() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return count_;
  }

 private:
  struct Known {
    std::string text;
    std::shared_ptr<const FusedOp> op;  // null: the backend declined the program
  };

  // Returns null if the backend declines the program.
  std::shared_ptr<const FusedOp> make(const Backend& backend, const FusedProgram& program,
                                      const std::string& text) {
    std::unique_ptr<FusedOp> made(new FusedOp(backend, program, text));
    if (!made->compile(backend.abi)) return nullptr;
    std::shared_ptr<const FusedOp> op(made.release(), [this](const FusedOp* leaving) {
      forget(leaving->text_);
      delete leaving;
    });
    ++count_;
    living_[text] = op;
    if (op->destroy_ == nullptr) forever_.push_back(op);
    return op;
  }
  // Forgets an operator that leaves. There may be another one of its program by now.
  void forget(const std::string& text) {
    const std::lock_guard<std::mutex> lock(mutex_);
    --count_;
    if (const auto at = living_.find(text); at != living_.end() && at->second.expired()) {
      living_.erase(at);
    }
  }

  std::mutex mutex_;
  std::list<Known> order_;  // the last asked for first
  absl::flat_hash_map<std::string, std::list<Known>::iterator> kept_;
  absl::flat_hash_map<std::string, std::weak_ptr<const FusedOp>> living_;
  std::vector<std::shared_ptr<const FusedOp>> forever_;  // of backends that destroy no kernels
  size_t count_ = 0;
};

FusedOp::FusedOp(const Backend& backend, const FusedProgram& program, std::string text)
    : text_(std::move(text)),
      name_(program.name()),
      values_(program.values()),
      kept_(program.calls()) {
  for (const FusedProgram::FusedCall& call : kept_) {
    calls_.push_back({call.program, call.compute, 0, call.inputs.data(), call.scalars.data(),
                      call.results.data()});
  }
  for (const auto& [operand, value] : program.outputs()) output_values_.push_back(value);
  const size_t inputs = program.inputs().size();
  std::vector<PlanKernelInfo::Operand> operands;
  for (size_t i = 0; i < inputs + output_values_.size(); ++i) {
    operands.push_back({i < inputs ? absl::StrCat("in", i) : absl::StrCat("out", i - inputs),
                        offset_of(i), i >= inputs});
  }
  info_ = &PlanKernelInfo::of(backend, name_, nullptr, operands, offset_of(operands.size()));
  program_.size = sizeof(mt_fused_program);
  program_.name = name_.c_str();
  program_.hash = fnv1a(std::string_view(text_).substr(backend.name.size() + 1));
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
  program_.destroy = &destroy_;
}

bool FusedOp::compile(const mt_backend& backend) {
  kernel_.size = sizeof(mt_kernel_entry);
  kernel_.op = info().name;
  kernel_.hash = program_.hash;
  if (backend.compile_fused(backend.self, &program_, &kernel_) == MT_OK) {
    return kernel_.run != nullptr;
  }
  destroy_ = nullptr;  // there is no kernel
  return false;
}

FusedOp::~FusedOp() {
  if (destroy_ != nullptr) destroy_(kernel_.self);
}

std::shared_ptr<const FusedOp> FusedOp::find(const Backend& backend, const FusedProgram& program) {
  return Table::instance().find(backend, program);
}

size_t FusedOp::count() { return Table::instance().count(); }

void FusedOp::run(int slot, mt_ctx* ctx, const void* args) const {
  run_plan_kernel(*info_, kernel_, slot, ctx, args);
}

}  // namespace mytorch::graph
