#include "bench/harness/subject.h"

#include "bench/harness/arguments.h"
#include "bench/harness/programs.h"
#include "dispatcher/custom/custom.h"
#include "dispatcher/table/op.h"
#include "mytorch/error.h"

namespace mytorch::bench {
namespace {

// An operator, called through OpInfo::boxed with converted arguments.
class OpSubject final : public Subject {
 public:
  explicit OpSubject(const Case& c)
      : record_(*c.record),
        inplace_(c.form == Form::kInplace),
        originals_(make_arguments(c)),
        written_(written_arguments(c)) {
    // The first call is by name, which checks the arguments.
    std::vector<NamedValue> named;
    for (size_t i = 0; i < originals_.size(); ++i) {
      named.emplace_back(record_.args[i].name, originals_[i]);
    }
    args_ = with_copies(originals_, written_);
    for (const size_t i : written_) named[i].second = args_[i];
    std::string name = record_.name;
    if (inplace_) name.insert(std::min(name.find('.'), name.size()), 1, '_');
    results_ = call(name, {}, std::move(named));
    bytes_ = call_bytes(record_, args_, results_, inplace_);
    if (record_.cost.contains("flops")) {
      flops_ = evaluate(record_.cost.at("flops"), facts_of(record_, args_, results_));
    }
    const OpInfo& info = *find_op(record_.name)->info;
    custom_ = c.form == Form::kFunction ? info.custom : nullptr;
    form_ = inplace_ ? info.boxed_inplace : c.form == Form::kOut ? info.boxed_out : info.boxed;
    if (form_ == nullptr && custom_ == nullptr) {
      throw Error(ErrorCode::kValue, "[bench] " + record_.name + " has no such form");
    }
    outs_ = c.form == Form::kOut ? results_.size() : 0;
    if (outs_ != 0) args_.insert(args_.begin(), results_.begin(), results_.end());
    results_.clear();
  }

  void run(int64_t times) override {
    for (int64_t i = 0; i < times; ++i) {
      results_.clear();
      if (custom_ == nullptr) {
        form_(args_.data(), &results_);
      } else {
        results_ = call_custom(*custom_, args_);
      }
    }
  }
  void renew() override {
    if (written_.empty()) return;
    std::vector<Value> plain(args_.begin() + static_cast<std::ptrdiff_t>(outs_), args_.end());
    restore(originals_, written_, plain);
  }
  int64_t most() const override { return written_.empty() ? INT64_MAX : 16; }
  Bytes bytes() override { return bytes_; }
  double flops() override { return flops_; }

 private:
  const OpRecord& record_;
  bool inplace_;
  std::vector<Value> originals_;
  std::vector<size_t> written_;
  size_t outs_ = 0;
  std::vector<Value> args_, results_;
  void (*form_)(const Value*, std::vector<Value>*) = nullptr;
  const CustomOperator* custom_ = nullptr;  // if set, called instead of form_
  Bytes bytes_;
  double flops_ = 0;
};

class ProgramSubject final : public Subject {
 public:
  ProgramSubject(const Program& program, Device device)
      : program_(program), loop_(program.make(device)) {
    loop_(1);
  }
  void run(int64_t times) override { loop_(times); }
  int calls() const override { return program_.calls; }
  Bytes bytes() override { return {program_.bytes / 2, program_.bytes / 2}; }
  double flops() override { return program_.flops; }

 private:
  const Program& program_;
  Loop loop_;
};

}  // namespace

std::unique_ptr<Subject> make_subject(const Case& c) {
  if (c.record != nullptr) return std::make_unique<OpSubject>(c);
  return std::make_unique<ProgramSubject>(find_program(c.program), c.device);
}

}  // namespace mytorch::bench
