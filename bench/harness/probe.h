// Observes the kernels that a call runs: which ones they are, how long they run, and how long the
// call takes without them.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "conformance/catalog.h"
#include "dispatcher/choice/choice.h"
#include "dispatcher/table/op.h"

namespace mytorch::bench {

// One kernel that ran.
struct KernelRun {
  const OpEntry* entry = nullptr;
  std::string backend;
  std::string kernel;
  double flops = 0;       // kernel_flops()
  bool has_cost = false;  // whether the record states the cost
};

// Wraps the kernels of operators on one device type. While a probe is active, only one thread at a
// time may call operators.
class Probe {
 public:
  enum class Mode {
    kTrace,       // records each kernel that runs
    kTime,        // sums the time of the kernels; repeats short ones
    kSkip,        // skips the kernels, so that frontend and selection remain
    kSkipDirect,  // also skips the selection: the operator's slot calls its first kernel
  };

  // Wraps the operators of `entries`, or all if it is empty.
  Probe(const std::vector<conformance::OpRecord>& catalog, int device_slot,
        const std::vector<const OpEntry*>& entries);
  ~Probe();
  Probe(const Probe&) = delete;
  Probe& operator=(const Probe&) = delete;

  // The probe is active from begin() to end().
  void begin(Mode mode);
  void end();

  // While active: whether no operator has a choice of kernels.
  bool all_direct() const;

  // After kTrace: the kernels that ran since begin().
  const std::vector<KernelRun>& trace() const { return trace_; }
  // After kTime: seconds in kernels since begin(), with one run per call.
  double seconds() const { return seconds_; }

 private:
  struct Watched;
  struct Wrapper;
  static int run(void* self, mt_ctx* ctx, const void* args);
  static int run_compiled(void* self, mt_ctx* ctx, const void* args);
  static const char* supports(void* self, const void* args);
  void install(Watched& watched, bool wrapped);

  std::map<std::string, const conformance::OpRecord*> records_;
  int slot_;
  Mode mode_ = Mode::kTrace;
  bool watching_ = false;
  std::vector<KernelRun> trace_;
  double seconds_ = 0;
  std::vector<std::unique_ptr<Watched>> watched_;
};

}  // namespace mytorch::bench
